"""What can happen to a worker, and what it can want done: the events and commands of the state machine.

Nothing here does anything; see `machine` for the decisions and `driver` for the deeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from throttle.scripts import Clash, Standing, Take, TakeAnswer
    from throttle.worker.state import End

MARK = "headroom"
"""Name of the message property by which the task's side finds its take: fleet, member and take id (or permit)."""

OPTION = "headroom"
"""Name of the transport option that carries the fleet and its rule to each channel."""

# ---------------------------------------------------------------- events


class Polled(NamedTuple):
    """The loop is about to wait, kombu has credit and there are queues to ask for."""

    places: bool
    """A process (thread, greenlet) of the pool is free."""


class Answered(NamedTuple):
    """TAKE was answered."""

    answer: TakeAnswer
    credit: bool
    places: bool
    not_mine: frozenset[int] = frozenset()
    """Acknowledgements that went with it and had no effect."""


class AcksLeft(NamedTuple):
    """The loop has turned and no TAKE took the pending acknowledgements along."""


class Rung(NamedTuple):
    """The wait for the bell ended, by a token or by its timeout."""

    credit: bool
    places: bool


class Unknown(NamedTuple):
    """The server did not know TAKE's script (it does now)."""

    credit: bool
    places: bool


class Cut(NamedTuple):
    """The channel's connection is gone, with whatever was under way on it."""


class Reopened(NamedTuple):
    """A channel consumes, at the start or after a reconnect; Celery has dropped all takes but `kept`."""

    kept: frozenset[int]


class Poked(NamedTuple):
    """What the worker consumes has changed."""


class PlaceFreed(NamedTuple):
    """A process of the pool is free."""


class BeatDue(NamedTuple):
    """It is time to beat, or to join."""

    boot: str
    """A boot id for the incarnation that this may begin."""


class Beaten(NamedTuple):
    """BEAT was answered."""

    member: str
    standing: Standing
    boot: str


class Joined(NamedTuple):
    """JOIN was accepted."""

    member: str
    epoch: str


class Clashed(NamedTuple):
    """JOIN was refused."""

    clash: Clash


class Started(NamedTuple):
    """The pool has accepted the task."""

    id: int


class Failed(NamedTuple):
    """The task did not end as it should; whether that is the end of the message, Celery says afterwards."""

    id: int
    crash: str = "crashed"
    """What happened to it; empty when the task itself rejects its message."""
    text: str = ""
    """The error."""


class Condemned(NamedTuple):
    """Nobody can run this message (unknown task, undecodable body)."""

    id: int
    reason: str
    text: str = ""
    """The error."""


class Acked(NamedTuple):
    """Celery acknowledged the message."""

    id: int
    busy: bool
    """The task runs or will run: an early acknowledgement."""
    follows: bool
    """The channel consumes, so that a TAKE follows at once when there is nothing under way."""


class Rejected(NamedTuple):
    """Celery rejected the message."""

    id: int
    requeue: bool


class Finished(NamedTuple):
    """The task of an early acknowledgement has ended."""

    id: int
    follows: bool


class Parked(NamedTuple):
    """The message is not due before `due_ms` (server time)."""

    id: int
    due_ms: int


class Missing(NamedTuple):
    """At a beat, Celery knew nothing of these takes."""

    ids: frozenset[int]


class Settled(NamedTuple):
    """The end of a take was answered; not `mine`: it had been returned to its queue before."""

    id: int
    mine: bool


class Due(NamedTuple):
    """PARK was answered: the message is due already, and still held."""

    id: int


class Unsettled(NamedTuple):
    """The last command about a take did not get through."""

    id: int


class DrainAsked(NamedTuple):
    """The worker begins to shut down."""


class LeaveAsked(NamedTuple):
    """The pool has ended; the worker goes."""


Event: TypeAlias = (
    Polled | Answered | AcksLeft | Rung | Unknown | Cut | Reopened | Poked | PlaceFreed | BeatDue | Beaten | Joined
    | Clashed | Started | Failed | Condemned | Acked | Rejected | Finished | Parked | Missing | Settled | Due
    | Unsettled | DrainAsked | LeaveAsked
)  # fmt: skip


# ---------------------------------------------------------------- commands


class SendTake(NamedTuple):
    """Send TAKE on the channel's connection."""

    member: str
    id: int
    critical: bool
    """Offer the critical queues too."""
    acks: tuple[int, ...] = ()
    """Takes of this member that are acknowledged on the way."""


class SendBell(NamedTuple):
    """Wait for the member's bell on the channel's connection."""

    member: str


class Deliver(NamedTuple):
    """Hand the message to Celery."""

    take: Take
    owner: str


class SendEnd(NamedTuple):
    """Send ACK, BACK or PARK."""

    owner: str
    id: int
    end: End
    keep: bool
    """The slot is kept for the TAKE that follows at once."""


class SendEmpty(NamedTuple):
    """Send EMPTY: acknowledged, but the work goes on."""

    owner: str
    id: int


class Credit(NamedTuple):
    """Give kombu's prefetch credit for this take back."""

    id: int


class Join(NamedTuple):
    """Send JOIN."""

    member: str
    draining: bool
    epoch: str
    next_id: int
    running: tuple[Take, ...]
    emptied: frozenset[int]
    given_back: tuple[int, ...] = ()


class SendBeat(NamedTuple):
    """Send BEAT."""

    member: str


class SendDrain(NamedTuple):
    """Send DRAIN."""

    member: str


class Leave(NamedTuple):
    """Send LEAVE."""

    member: str


class Poke(NamedTuple):
    """End the member's own wait for its bell."""

    member: str


class Kick(NamedTuple):
    """Wake the worker's loop."""


class Watch(NamedTuple):
    """Offer to be the fleet's doorkeeper: there is none."""


class Disown(NamedTuple):
    """Note that the fleet had given this take to others before it ended."""

    take: Take


class Refuse(NamedTuple):
    """Stop the worker: another living process has its name."""

    other: str


Command: TypeAlias = (
    SendTake | SendBell | Deliver | SendEnd | SendEmpty | Credit | Join | SendBeat | SendDrain | Leave | Poke | Kick
    | Watch | Disown | Refuse
)  # fmt: skip
