"""What the operations on a cluster answer, in words that decisions can use. Plain values."""

from __future__ import annotations

from typing import Literal, NamedTuple

BindState = Literal["initialising", "ready", "handoff", "orphan"]
Decider = Literal["votes", "person"]
Outcome = Literal["none", "proposed", "pending", "same", "unknown", "budget", "guard"]
"""Of a vote or a wish for a target: not enough votes; it is pending now; another one is pending; it is so already;
nobody knows the identify budget yet; the budget cannot pay for it; the guard holds."""


class Target(NamedTuple):
    """A total of shards, with the version under which its binds are kept."""

    version: int
    total: int
    since_ms: int
    by: Decider
    """A person's stays until the person leaves it to the votes, or Discord itself closes connections."""


class Bind(NamedTuple):
    """Who holds one shard of one target."""

    state: BindState
    member: str
    fence: int

    @property
    def held(self) -> bool:
        """Whether it is somebody's."""
        return self.state in ("initialising", "ready")


class Stop(NamedTuple):
    """What is tried no more, for Discord closed a shard for it, until a person says otherwise."""

    scope: str
    """The name of credentials, or "v" and a target's version."""
    code: int
    """Discord's close code."""
    at_ms: int
    why: str


class Head(NamedTuple):
    """What is true of the whole cluster."""

    rev: int
    """Rises with each change; a view of the same rev is the same."""
    now_ms: int
    epoch: int
    n: int
    fence: int
    guard_ms: int
    """What is left of the guard."""
    active: Target | None
    pending: Target | None
    peak: int
    stops: tuple[Stop, ...] = ()
    born: int = 0
    """When the numbering of targets began, by the server's clock in ms; 0 before the first target."""


class Member(NamedTuple):
    """A member as its heartbeat tells it."""

    name: str
    limit: int
    draining: bool
    load: int


class View(NamedTuple):
    """Members and binds at one rev."""

    members: tuple[Member, ...] = ()
    totals: dict[int, int] = {}  # noqa: RUF012 - never changed
    """Version -> its total, for each that has binds."""
    binds: dict[tuple[int, int], Bind] = {}  # noqa: RUF012 - never changed
    """(version, shard) -> its bind."""


class Budget(NamedTuple):
    """The day's identifies."""

    total: int
    remaining: int
    reset_at_ms: int
    concurrency: int


class Synced(NamedTuple):
    """Of a SYNC."""

    head: Head
    lost: tuple[tuple[int, int], ...]
    """What the member told it holds, and does not."""
    view: View | None
    """None: as it was seen last."""
    proposed: int = 0
    """Total that this SYNC made pending, since votes that were filed before count now; 0 for none."""


class Looked(NamedTuple):
    """Of a LOOK."""

    head: Head
    view: View
    note: str
    """What was last said about the target."""
    guarded: str
    """Why the guard was armed last."""
    budget: Budget | None
