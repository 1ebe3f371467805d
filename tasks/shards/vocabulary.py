"""The words of the coordinator: what it knows, what can happen to it, what it wants done. Plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from tasks.shards.answers import Head, Stop, Target, View
from tasks.shards.operations import Known
from tasks.shards.placement import UNLIMITED

if TYPE_CHECKING:
    from tasks.shards.answers import Synced

How = Literal["hand over", "retire", "lost"]
"""Why a connection is closed: another pod resumes it; its target is over; another pod has it already."""
Slot = tuple[int, int]
"""(version, shard)."""


class Own(NamedTuple):
    """A bind that this member holds, with its connection."""

    fence: int
    ready: bool = False
    closing: bool = False


class Opinion(NamedTuple):
    """What Discord told this member last, and in how many rounds on end."""

    total: int = 0
    rounds: int = 0


class Numbers(NamedTuple):
    """Settings that decisions need, in seconds."""

    ttl_s: float = 9.0
    every_s: float = 0.5
    """Between two SYNCs."""
    soonest_s: float = 0.05
    """Between a SYNC and the one that a notification asks for."""
    rebalance_s: float = 10.0
    limit: int = UNLIMITED
    """Shards that this pod holds at most."""
    spacing_s: float = 5.3
    settle_s: float = 120.0
    """From the last identify of a pending target to all of it ready, at most; then it is aborted."""


def scope_of(version: int) -> str:
    """What a target is called where it is stopped."""
    return f"v{version}"


class State(NamedTuple):
    """All that a member knows. Replaced, never changed."""

    member: str
    numbers: Numbers
    credentials: str = ""
    """What token and intents of this member are called."""
    known: Known = Known()
    head: Head = Head(-1, 0, 0, 0, 0, 1, None, None, 0)
    view: View = View()
    owns: dict[Slot, Own] = {}  # noqa: RUF012 - never changed
    releasing: dict[Slot, int] = {}  # noqa: RUF012 - never changed
    """Slot -> fence of what was given up and Redis has not confirmed."""
    owed: frozenset[Slot] = frozenset()
    """Of these, whose RELEASE or STOP was not answered and is to be sent again."""
    stopping: dict[Slot, Stop] = {}  # noqa: RUF012 - never changed
    """Of these, what Discord closed for good, as long as Redis has not confirmed that it knows."""
    lease_end_s: float = 0.0
    sync_sent_s: float | None = None
    """When the SYNC that is under way was sent."""
    sync_leased: bool = False
    sync_told: dict[Slot, Own] = {}  # noqa: RUF012 - never changed
    """What it told Redis that we hold."""
    sync_fresh: bool = False
    """Nothing that would change the view was answered since it was sent."""
    synced_s: float = float("-inf")
    """When the last SYNC was sent."""
    hurry: bool = False
    """Something changed: do not wait for the next round."""
    claiming: bool = False
    rebalanced_s: float = 0.0
    concurrency: int = 1
    opinion: Opinion = Opinion()
    draining: bool = False
    left: bool = False

    def leased(self, now_s: float) -> bool:
        """Whether what this member holds is surely nobody else's at this instant."""
        return now_s < self.lease_end_s

    def holds(self, slot: Slot, now_s: float) -> int:
        """The fence under which this member may act for a shard now; 0 when it may not."""
        own = self.owns.get(slot)
        return own.fence if own and not self.left and self.leased(now_s) else 0

    def keeps(self, slot: Slot, fence: int) -> bool:
        """Whether a shard is this member's and not to be closed."""
        own = self.owns.get(slot)
        return own is not None and own.fence == fence and not own.closing

    def stopped(self, version: int) -> Stop | None:
        """Why nobody with our credentials identifies for a target; None when we may."""
        return next((stop for stop in self.head.stops if stop.scope in (self.credentials, scope_of(version))), None)

    def target_of(self, version: int) -> Target | None:
        """The active or pending target of a version."""
        return next((t for t in (self.head.active, self.head.pending) if t and t.version == version), None)


# ---------------------------------------------------------------- events


class Ticked(NamedTuple):
    """Time has passed."""

    now_s: float


class Heard(NamedTuple):
    """A notification came."""

    now_s: float


class SyncAnswered(NamedTuple):
    """SYNC was answered."""

    now_s: float
    synced: Synced


class Claimed(NamedTuple):
    """CLAIM was answered: a fence for each shard, 0 for none."""

    now_s: float
    version: int
    shards: tuple[int, ...]
    fences: tuple[int, ...]


class Released(NamedTuple):
    """RELEASE was answered."""

    slot: Slot


class Stopped(NamedTuple):
    """STOP was answered."""

    slot: Slot


class Unanswered(NamedTuple):
    """A command to Redis failed; whether it was done is unknown."""

    command: Needed


class Opened(NamedTuple):
    """A connection is ready, and its guilds have settled."""

    slot: Slot
    fence: int


class Lost(NamedTuple):
    """A connection has lost its socket, and comes back by itself; `Opened` says when."""

    slot: Slot
    fence: int


class Closed(NamedTuple):
    """A connection has ended for good; `fatal` tells why no other pod shall try again, `code` is Discord's."""

    slot: Slot
    fence: int
    fatal: str = ""
    code: int = 0


class Told(NamedTuple):
    """Discord answered: so many shards, and the day's identifies."""

    total: int
    concurrency: int
    day_total: int
    remaining: int
    reset_after_ms: int


class DrainAsked(NamedTuple):
    """The pod is to end: hand everything over."""


Event = (
    Ticked | Heard | SyncAnswered | Claimed | Released | Stopped | Unanswered | Opened | Lost | Closed | Told
    | DrainAsked
)  # fmt: skip


# ---------------------------------------------------------------- commands


class SendSync(NamedTuple):
    """Send SYNC."""


class SendClaim(NamedTuple):
    """Send CLAIM."""

    version: int
    most: int
    shards: tuple[int, ...]


class SendRelease(NamedTuple):
    """Send RELEASE."""

    slot: Slot
    fence: int


class SendFlip(NamedTuple):
    """Send FLIP."""

    version: int


class SendAbort(NamedTuple):
    """Send ABORT."""

    version: int
    why: str


class SendStop(NamedTuple):
    """Send STOP."""

    slot: Slot
    fence: int
    stop: Stop


class SendBudget(NamedTuple):
    """Send BUDGET."""

    told: Told


class SendVote(NamedTuple):
    """Send VOTE."""

    total: int
    rounds: int


class SendLeave(NamedTuple):
    """Send LEAVE; the member is over."""


class Open(NamedTuple):
    """Connect a shard: resume its session if there is one, else identify through the gate."""

    slot: Slot
    total: int
    fence: int


class Close(NamedTuple):
    """End a connection. `Closed` follows."""

    slot: Slot
    fence: int
    how: How


Needed = SendSync | SendClaim | SendRelease | SendStop
"""What is told when it was not answered."""
Sent = SendSync | SendClaim | SendRelease | SendFlip | SendAbort | SendStop | SendBudget | SendVote | SendLeave
Command = Sent | Open | Close
