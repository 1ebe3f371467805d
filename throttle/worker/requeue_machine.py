"""The decisions of `gate="requeue"`, as `machine` makes those of the take: `step(state, event) -> (state, commands)`.

What both gates share (membership, ends that are owed while Redis is away, the shutdown) is `machine`'s; a permit is
to it a take without a message, acknowledged early. Here is the rest: who is let in, and the door.

======  ==========================  ====================================================================
door    event                       then
======  ==========================  ====================================================================
any     request, not a member       not let in; nothing is asked
any     request                     ACQUIRE
        admitted                    it holds a permit until it has ended
        denied                      not let in; the door is shut
        LOST                        not let in; ask by BEAT whether we are a member
        no answer                   not let in; nothing is asked before the next beat, which gives the permit
                                    back if there was one
shut    the message is back         KNOCK, and again after each bell (or second without one)
shut    room                        the door is open
any     new connection              the door is open: what it was shut for went back with the old one
======  ==========================  ====================================================================

Through a shut door comes critical work only; while this process is no living member, or Redis is away, none at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from throttle.scripts import Take
from throttle.worker import machine
from throttle.worker import vocabulary as v
from throttle.worker.state import End, Held, State

if TYPE_CHECKING:
    from collections.abc import Sequence

UNSURE = "unsure"
"""Reason of the end of a permit that may never have been given."""

# ---------------------------------------------------------------- events


class Requested(NamedTuple):
    """A task is about to be handed to the pool."""

    critical: bool


class Acquired(NamedTuple):
    """ACQUIRE was answered: admitted, denied, or LOST (None)."""

    member: str
    id: int
    admitted: bool | None


class Unanswered(NamedTuple):
    """ACQUIRE was not answered: whether there is a permit is unknown."""

    member: str
    id: int


class PutBack(NamedTuple):
    """The message of a request that was not let in is back in its queue."""


class KnockDue(NamedTuple):
    """A bell was rung, or none for a second."""


class Knocked(NamedTuple):
    """KNOCK was answered: room, none, or LOST (None)."""

    member: str
    room: bool | None


# ---------------------------------------------------------------- commands


class Acquire(NamedTuple):
    """Send ACQUIRE."""

    member: str
    id: int
    critical: bool


class Listen(NamedTuple):
    """Knock now, and wait for bells while the door is shut."""


class Knock(NamedTuple):
    """Send KNOCK."""

    member: str


GateEvent: TypeAlias = Requested | Acquired | Unanswered | PutBack | KnockDue | Knocked
GateCommand: TypeAlias = Acquire | Listen | Knock
Outcome = tuple[State, "Sequence[v.Command | GateCommand]"]


def step(state: State, event: v.Event | GateEvent) -> Outcome:  # noqa: PLR0911 - one line for each event
    """The state after `event`, and what to do about it, in this order."""
    match event:
        case Requested(critical):
            return state, (Acquire(state.member, state.next_id, critical),) if state.admits else ()
        case Acquired():
            return _acquired(state, event)
        case Unanswered(member, number):
            ending = Held(Take(number, 0, 0, b"", b""), member, "ending", End("ack", reason=UNSURE), owed=True)
            return _hold(state, ending)._replace(reachable=False), ()
        case PutBack():
            return state, (Listen(),) if state.shut else ()
        case KnockDue():
            return state, (Knock(state.member),) if state.shut and state.admits else ()
        case Knocked(member, room):
            return _knocked(state, member, room=room)
        case _:
            return _shared(state, event)


def _acquired(state: State, event: Acquired) -> Outcome:
    if event.admitted:
        return _hold(state, Held(Take(event.id, 0, 0, b"", b""), event.member, "emptied")), ()
    if event.admitted is None:
        return _lost(state, event.member)
    return state._replace(shut=True), ()


def _knocked(state: State, member: str, *, room: bool | None) -> Outcome:
    if room is None:
        return _lost(state, member)
    return (state._replace(shut=False), (v.Kick(),)) if room and state.shut else (state, ())


def _lost(state: State, member: str) -> Outcome:
    if state.membership != "living" or member != state.member:
        return state, ()
    return state._replace(membership="suspect"), (v.SendBeat(member),)


def _shared(state: State, event: v.Event) -> Outcome:
    if isinstance(event, v.Reopened):
        state = state._replace(shut=False)
    if isinstance(event, v.Settled) and not event.mine:
        held = state.held.get(event.id)
        if held is not None and held.end is not None and held.end.reason == UNSURE:
            event = event._replace(mine=True)
    after, commands = machine.step(state, event)
    return after, (*commands, v.Kick()) if after.admits and not state.admits else commands


def _hold(state: State, held: Held) -> State:
    return state._replace(next_id=held.take.id + 1, held={**state.held, held.take.id: held})
