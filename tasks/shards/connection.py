"""What holds the connections of this member's shards, as the coordinator's driver sees it.

The driver says what to open and to close. Who holds the connections says what became of it, and asks the gate before
each IDENTIFY. All of it happens in the driver's loop, so that no lock is needed.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tasks.shards.vocabulary import How, Slot, State


class Waiting(NamedTuple):
    """What was heard and is not handed on."""

    events: int = 0
    bytes: int = 0
    oldest_s: float = inf
    """When the oldest of it was heard, on the monotonic clock; inf: there is none."""


class Owner(Protocol):
    """The driver, as connections see it."""

    state: State
    """All that this member knows. The driver replaces it; look at it anew each time."""

    def opened(self, slot: Slot, fence: int) -> None:
        """A connection is ready, and its guilds have settled."""
        ...

    def lost(self, slot: Slot, fence: int) -> None:
        """A connection has lost its socket, and comes back by itself; `opened` says when."""
        ...

    def closed(self, slot: Slot, fence: int, fatal: str = "", code: int = 0) -> None:
        """A connection has ended for good; `fatal` tells why no other pod shall try again, `code` is Discord's."""
        ...

    async def may_identify(self, slot: Slot, fence: int) -> bool:
        """Wait for the gate. True: identify now, within a quarter of a second; False: not at all."""
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

    def waiting(self) -> Waiting:
        """What was heard and is not handed on; asked ten times a second."""
        ...

    async def end(self) -> None:
        """The process ends: drop what is left, within moments."""
        ...
