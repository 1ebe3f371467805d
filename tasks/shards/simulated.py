"""Connections that are none, to try how pods agree: they ask the gate, take their time, and remember sessions.

What Discord would remember of a session is in Redis, so that another pod resumes it. Where Redis is away the shard
identifies, which is what a bot whose sessions are lost does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import redis.asyncio
from redis.exceptions import RedisError

from tasks.shards.connection import Waiting

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tasks.shards.connection import Owner
    from tasks.shards.keys import Keys
    from tasks.shards.vocabulary import How, Slot

SESSION_S = 3600


class Sessions(Protocol):
    """What a simulated Discord remembers, shared by all pods."""

    def resumes(self, slot: Slot) -> Awaitable[bool]:
        """Whether the shard has a session that can go on."""
        ...

    def identified(self, slot: Slot) -> Awaitable[None]:
        """Note an IDENTIFY, and its session."""
        ...

    def close(self) -> Awaitable[None]:
        """Nobody asks any more."""
        ...


class Simulated:
    """Connections that are none: they ask the gate, take their time, and remember sessions where they are told to."""

    def __init__(self, sessions: Sessions, *, ready_s: float = 0.3) -> None:
        """`ready_s`: from IDENTIFY to READY; a RESUME takes a tenth of it."""
        self._sessions, self._ready_s = sessions, ready_s
        self._owner: Owner | None = None
        self._running: dict[Slot, asyncio.Task[None]] = {}

    def begin(self, owner: Owner) -> None:
        """Know whom to tell."""
        self._owner = owner

    def open(self, slot: Slot, total: int, fence: int) -> None:
        """Connect after a while."""
        del total
        if self._owner is not None:
            self._running[slot] = asyncio.create_task(self._connect(self._owner, slot, fence))

    async def _connect(self, owner: Owner, slot: Slot, fence: int) -> None:
        if await self._sessions.resumes(slot):
            await asyncio.sleep(self._ready_s / 10)
        elif await owner.may_identify(slot, fence):
            await self._sessions.identified(slot)
            await asyncio.sleep(self._ready_s)
        else:
            return
        owner.opened(slot, fence)

    def close(self, slot: Slot, fence: int, how: How) -> None:
        """Disconnect."""
        del how
        running = self._running.pop(slot, None)
        if running is not None:
            running.cancel()
        if self._owner is not None:
            asyncio.get_running_loop().call_soon(self._owner.closed, slot, fence)

    def waiting(self) -> Waiting:
        """Nothing is ever heard."""
        return Waiting()

    async def end(self) -> None:
        """Drop everything."""
        tasks = list(self._running.values())
        self._running.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._sessions.close()


class RedisSessions:
    """Sessions in the cluster's own Redis, for an hour each."""

    def __init__(self, url: str, keys: Keys) -> None:
        """Nothing is opened before the first question."""
        self._client = redis.asyncio.Redis.from_url(url, socket_timeout=1.0)  # pyright: ignore[reportUnknownMemberType]
        self._keys = keys

    async def resumes(self, slot: Slot) -> bool:
        """Whether the shard has identified lately."""
        try:
            return bool(await self._client.exists(self._keys.simulated(*slot)))
        except (RedisError, OSError):
            return False

    async def identified(self, slot: Slot) -> None:
        """Note it, if Redis is there."""
        try:
            await self._client.set(self._keys.simulated(*slot), 1, ex=SESSION_S)
        except (RedisError, OSError):
            return

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
