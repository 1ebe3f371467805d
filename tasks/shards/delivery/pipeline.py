"""The delivery's connection to Redis: commands in one round trip, their scripts loaded where they are missing.

A server that takes no writes is a replica now (a fail-over), and an open connection would stay with it for ever: it is
given up, and the next one leads to whoever is the master. What was done before that is not done twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError

from tasks.shards.delivery import calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.shards.operations import Argument

ANSWER_S = 2.0


def is_read_only(answer: object) -> TypeGuard[RedisError]:
    """Whether the server is a replica. Before version 7 a script's refusal has no class of its own."""
    return isinstance(answer, ReadOnlyError) or (isinstance(answer, RedisError) and "READONLY" in str(answer))


class Pipeline:
    """Made outside a loop, used in one. Nothing is opened before the first call."""

    def __init__(self, url: str) -> None:
        """`url`: of Redis."""
        self._client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            retry=Retry(NoBackoff(), 0),
        )

    async def ask(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """The answers of all, errors of single commands among them.

        Raises one of `listening.ERRORS` where there is none, or where a command met a replica.
        """
        answers = await self._send(commands)
        if any(isinstance(answer, NoScriptError) for answer in answers):
            for name in calls.OPERATIONS:
                await self._client.script_load(calls.script(name).source)
            answers = await self._send(commands)  # of what was done, none is done twice
        for answer in answers:
            if is_read_only(answer):
                await self._client.connection_pool.disconnect()
                raise answer
        return answers

    async def _send(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        async with self._client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)  # pyright: ignore[reportUnknownMemberType]
            return await pipe.execute(raise_on_error=False)

    async def close(self) -> None:
        """End its connections."""
        await self._client.aclose()
