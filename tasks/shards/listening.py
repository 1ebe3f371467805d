"""Hears of changes in a cluster, for as long as it runs, whatever becomes of the connection.

What is published while nobody listens is lost. So each subscription counts as news itself, and one that was quiet for a
while is asked whether it lives: a half-open one would be quiet for ever. All of it only makes it quicker: members look
twice a second anyway.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, cast

from redis.exceptions import RedisError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Redis

ERRORS = (RedisError, OSError, asyncio.TimeoutError)
"""What says that Redis, or the way to it, is not there."""
AGAIN_S = 0.5
QUIET_S = 5.0


async def listen(
    connect: Callable[[], Redis], channel: str, heard: Callable[[], None], quiet_s: float = QUIET_S
) -> None:
    """Call `heard` for each message on the channel and after each subscription; ends by being cancelled.

    Args:
        connect: makes a client without a limit on its answers.
        channel: by its name.
        heard: called in the loop.
        quiet_s: after so long a subscription is asked, and after as much again it is given up.
    """
    while True:
        client = connect()
        try:
            await _hear(client, channel, heard, quiet_s)
        except ERRORS:
            pass
        finally:
            await client.aclose()
        await asyncio.sleep(AGAIN_S + random.random() * AGAIN_S)


async def _hear(client: Redis, channel: str, heard: Callable[[], None], quiet_s: float) -> None:
    """One subscription, until it is lost."""
    async with client.pubsub() as pubsub:
        await pubsub.subscribe(channel)
        asked = False
        while True:
            message = cast("dict[str, object] | None", await pubsub.get_message(timeout=quiet_s))  # pyright: ignore[reportUnknownMemberType]
            if message is not None:
                asked = False
                if message["type"] != "pong":
                    heard()
            elif asked:
                return
            else:
                asked = True
                await pubsub.ping()  # pyright: ignore[reportUnknownMemberType]
