"""What holds the connections of this member's shards, as the coordinator's driver sees it; and one that simulates them.

The driver says what to open and to close. Who holds the connections says what became of it, and asks the gate before
each IDENTIFY. All of it happens in the driver's loop, so that no lock is needed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from tasks.shards.vocabulary import How, Slot


class Owner(Protocol):
    """The driver, as connections see it."""

    def opened(self, slot: Slot, fence: int) -> None:
        """A connection is ready, and its guilds have settled."""
        ...

    def closed(self, slot: Slot, fence: int, fatal: str = "") -> None:
        """A connection has ended for good; `fatal` tells why no other pod should try again at once."""
        ...

    async def may_identify(self, slot: Slot, fence: int) -> bool:
        """Wait for the gate. True: identify now, within a quarter of a second; False: it is not ours any more."""
        ...


class Connections(Protocol):
    """Whoever holds connections."""

    def begin(self, owner: Owner) -> None:
        """Know whom to tell; once, in the driver's loop."""
        ...

    def open(self, slot: Slot, total: int, fence: int) -> None:
        """Connect a shard. `opened` or `closed` follows, however long it takes."""
        ...

    def close(self, slot: Slot, fence: int, how: How) -> None:
        """End a connection, or the attempt. `closed` follows, also when there is none."""
        ...

    async def end(self) -> None:
        """The process ends: drop what is left, within moments."""
        ...


class Sessions(Protocol):
    """What a simulated Discord remembers, shared by all pods."""

    def resumes(self, slot: Slot) -> Awaitable[bool]:
        """Whether the shard has a session that can go on."""
        ...

    def identified(self, slot: Slot) -> Awaitable[None]:
        """Note an IDENTIFY, and its session."""
        ...


class Simulated:
    """Connections that are none: they ask the gate, take their time, and remember sessions where they are told to."""

    def __init__(self, sessions: Sessions, *, ready_s: float = 0.3) -> None:
        """`ready_s`: from IDENTIFY to READY; a RESUME takes a tenth of it."""
        self._sessions, self._ready_s = sessions, ready_s
        self._owner: Owner | None = None
        self._running: dict[Slot, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()

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
        owner = self._owner
        if owner is not None:
            self._later(lambda: owner.closed(slot, fence))

    def _later(self, what: Callable[[], None]) -> None:
        async def soon() -> None:
            what()

        coroutine: Coroutine[None, None, None] = soon()
        task = asyncio.create_task(coroutine)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def end(self) -> None:
        """Drop everything."""
        for task in self._running.values():
            task.cancel()
        self._running.clear()
