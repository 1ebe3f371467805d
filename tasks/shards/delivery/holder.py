"""Who holds the connections, as the delivery sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from tasks.shards.vocabulary import Slot

Why = Literal["not held", "over", "full"]
"""Why nothing of a shard goes on: Redis knows another holder, or none (SYNC will tell who it is); its target is over;
the outbox was full, and the shard was given up."""


class Holder(Protocol):
    """Who holds the connections, as the outbox sees it. Called in the loop."""

    def refused(self, slot: Slot, fence: int, why: Why) -> None:
        """Nothing more of this shard goes on. `over`, `full`: what was put is dropped, and what comes is; close it."""
        ...

    def beat(self, slot: Slot, fence: int) -> None:
        """Send Discord a beat on this shard's socket now; `Outbox.answered` is told when it was answered."""
        ...

    def holds(self, slot: Slot, fence: int) -> bool:
        """Whether the lease still covers the shard; asked before a callback."""
        ...
