"""What a worker knows: its membership, what is under way on its channel, and each take from its answer to its end.

Plain values, replaced and never changed, so that a failing test prints as the story of what happened.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from throttle.scripts import Clash, Take, Where

Membership = Literal["out", "living", "suspect", "left"]
"""out: not a member (yet, or any more), a JOIN is due. suspect: TAKE was answered LOST, a BEAT is to tell why.
left: over."""

Phase = Literal["", "take", "bell"]
"""What is under way on the channel's connection: nothing, a TAKE, or the wait for the bell."""

Stage = Literal["delivered", "running", "emptied", "ending"]
"""Of a take: with Celery but in no process yet; accepted by the pool; acknowledged early, its work goes on; its end is
known and was sent, or is owed until Redis answers again."""


def alone_from(max_deliveries: int) -> int:
    """From which delivery on a message is run with nothing taken beside it: the last two, if there are so many.

    The last one is to condemn it for itself. The one before leaves room for a pod that dies of something else.
    """
    return 0 if max_deliveries == 1 else max(1, max_deliveries - 2)


class End(NamedTuple):
    """How a take ends."""

    how: Literal["ack", "back", "park"]
    where: Where = "head"
    deliveries: int = 0
    """How many to add to the message's count: 1 where running it may have been what killed it."""
    reason: str = ""
    due_ms: int = 0
    """For a parked message: server time."""
    text: str = ""
    """The error, for the message's history."""


class Held(NamedTuple):
    """One take from its answer until Redis confirmed its end."""

    take: Take
    owner: str
    """The member that holds it in Redis."""
    stage: Stage = "delivered"
    end: End | None = None
    owed: bool = False
    """Its last command did not get through and is to be repeated."""
    crashed: str = ""
    """What ran it ended otherwise than by its own will, and how: crashed, time limit."""
    text: str = ""
    """The error that goes with its end."""
    condemned: str = ""
    """Why it is a dead letter, however Celery ends it."""
    resent: bool = False
    """Its end was sent before and that answer was lost: a second "not yours" tells nothing."""
    missed: int = 0
    """Beats for which Celery has not known it."""


class State(NamedTuple):
    """All that this process knows about its membership, its channel and its takes. Replaced, never changed."""

    pod: str
    membership: Membership = "out"
    member: str = ""
    epoch: str = ""
    drain: bool = False
    """Take nothing more: the worker ends, or somebody drained it from outside."""
    phase: Phase = ""
    asked: str = ""
    """The member that the TAKE or the bell under way belongs to."""
    offered: bool = False
    """Whether that TAKE offered the critical queues: a place was free then."""
    poked: bool = False
    """Something changed since that TAKE was sent, so its "nothing" is stale."""
    next_id: int = 1
    """Take id: the same until an answer was seen, never a second time after, whatever incarnation asks."""
    held: Mapping[int, Held] = MappingProxyType({})
    rival: Clash | None = None
    """The incarnation that was found in our place."""
    pending_acks: tuple[int, ...] = ()
    """Takes whose acknowledgement goes to Redis with the next TAKE."""
    sent_acks: tuple[int, ...] = ()
    """Those that went with the TAKE under way."""
    alone_from: int = 0
    """A message that was delivered so often before has nothing taken beside it; 0: none has."""
    given_back: tuple[int, ...] = ()
    """The newest takes that were put back or parked: JOIN tells them, in case Redis comes back from before that."""
    reachable: bool = True
    """False from a command that did not get through until a beat or join does."""

    shut: bool = False
    """At the requeue gate: normal work was denied, and none is fetched until there is room."""

    @property
    def may_take(self) -> bool:
        """Whether the fleet may be asked for work."""
        return self.membership == "living" and not self.drain

    @property
    def runs_alone(self) -> bool:
        """Whether something is held that nothing is to be taken beside.

        A pod that dies counts against all that it held. What has only a few deliveries left kills its pods, or was
        beside what does; on its own it is done, or condemned for itself.
        """
        alone_from = self.alone_from
        return alone_from > 0 and any(
            held.take.deliveries >= alone_from and held.stage != "ending" for held in self.held.values()
        )

    @property
    def admits(self) -> bool:
        """At the requeue gate: whether a request may be let in at all."""
        return self.may_take and self.reachable
