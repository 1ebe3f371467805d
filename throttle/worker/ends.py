"""How a take ends: the decisions of `machine` about acknowledgements, rejections and what Redis answers to them.

Pure functions as there; see the tables in its docstring.

An acknowledgement that a TAKE follows at once goes with that TAKE: *pending* until it is sent, *sent* until it is
answered. Its take stays held meanwhile, so the slot is occupied throughout, and a process that dies leaves a message
that comes again, as one that dies before an ACK does. If no TAKE follows after all (the loop has turned, a beat, a
drain), it goes alone; if one was cut off, it is sent again, which has no second effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from throttle.worker import vocabulary as v
from throttle.worker.state import End, Held, State

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

Outcome = tuple[State, "Sequence[v.Command]"]
REMEMBERED = 64
"""So many takes that were put back or parked are told to a JOIN."""
DRAINED = "drained"
"""What ended a task that the drain's deadline stopped: nobody's fault."""
FORGOTTEN_BEATS = 3
"""After so many beats without a trace of it in Celery, a take goes back to its queue."""


def acked(state: State, held: Held, *, busy: bool, follows: bool) -> Outcome:
    """Celery acknowledged; `busy`: before the work is done."""
    if held.stage not in ("delivered", "running"):
        return state, ()
    if held.condemned:
        return end_with(state, held, dead(held))
    if busy:
        emptied = held._replace(stage="emptied", owed=not state.reachable)
        return noted(state, emptied), (v.SendEmpty(held.owner, held.take.id),) if state.reachable else ()
    if follows and state.reachable and state.may_take and state.phase != "bell" and held.owner == state.member:
        ending = held._replace(stage="ending", end=End("ack"))
        pending = (*state.pending_acks, held.take.id)
        return noted(state._replace(pending_acks=pending), ending), (v.Credit(held.take.id),)
    return end_with(state, held, End("ack"))


def send_acks(state: State, *, but_of: str = "") -> Outcome:
    """Send alone what is pending, in case no TAKE follows; but what is to go with that of a member.

    An acknowledgement has its effect for the member that holds the take. One that was taken for dead, and joins anew
    while the acknowledgement is pending, holds it no more: it is told so, once.
    """
    rides = tuple(number for number in state.pending_acks if state.held[number].owner == but_of)
    alone = tuple(command_of(state.held[number]) for number in state.pending_acks if number not in rides)
    return state._replace(pending_acks=rides), alone


def unanswered(state: State) -> State:
    """Nothing is under way any more. What went with a TAKE may have had its effect, and is pending again."""
    again = [state.held[number]._replace(resent=True) for number in state.sent_acks]
    pending = (*state.sent_acks, *state.pending_acks)
    return noted(state, *again)._replace(phase="", sent_acks=(), pending_acks=pending)


def acks_answered(state: State, not_mine: Container[int]) -> Outcome:
    """The TAKE was answered, and with it what went along.

    Where Redis lost its data after that TAKE and holds the takes again, for who we are now, they are to go once more.
    """
    commands: list[v.Command] = []
    again: list[Held] = []
    for number in state.sent_acks:
        held = state.held[number]
        if held.owner != state.asked:
            again.append(held._replace(resent=True))
            continue
        state, disown = settled(state, held, mine=number not in not_mine)
        commands += disown
    pending = (*(held.take.id for held in again), *state.pending_acks)
    return noted(state, *again)._replace(sent_acks=(), pending_acks=pending), commands


def rejection(held: Held) -> End:
    """The end of a message that Celery wants back in its queue."""
    if held.crashed == DRAINED:
        return End("back", reason=DRAINED)
    if held.crashed:
        return End("back", "head", 1, reason=held.crashed, text=held.text)
    return End("back", "tail" if held.stage == "running" else "head")


def dead(held: Held) -> End:
    """The end of a message that nobody is to run."""
    return End("back", "dead", 1, reason=held.condemned or "rejected", text=held.text)


def end_with(state: State, held: Held, end: End, *, follows: bool = False) -> Outcome:
    """Send an end, or owe it while Redis is away; then give the credit back."""
    ending = held._replace(stage="ending", end=end, resent=False)
    if not state.reachable:
        return noted(state, ending._replace(owed=True)), (v.Credit(held.take.id),)
    keep = end.how == "ack" and follows and not state.phase and state.may_take
    return noted(state, ending), (command_of(ending, keep=keep), v.Credit(held.take.id))


def command_of(held: Held, *, keep: bool = False) -> v.Command:
    """What Redis is to be told about a take."""
    if held.end is None:
        return v.SendEmpty(held.owner, held.take.id)
    return v.SendEnd(held.owner, held.take.id, held.end, keep)


def send_owed(state: State) -> tuple[State, list[v.Command]]:
    """Send again what did not get through; the newest take first, so that at the head of a queue the order stands."""
    newest_first = sorted(state.held.values(), key=lambda h: h.take.seq, reverse=True)
    owed = [h._replace(owed=False, resent=True) for h in newest_first if h.owed]
    return noted(state, *owed)._replace(reachable=True), [command_of(h) for h in owed]


def due(state: State, held: Held) -> Outcome:
    """It was not to be parked: whoever parked it delivers it, unless that is long ago."""
    if held.resent:
        return end_with(state, held, End("back"))
    return noted(state, held._replace(stage="delivered", end=None)), ()


def settled(state: State, held: Held, *, mine: bool) -> Outcome:
    """Redis answered: the take is over. Not ours any more is news only where no earlier answer may have been lost."""
    given_back = state.given_back
    if held.end is not None and held.end.how != "ack":
        given_back = (*given_back[1 - REMEMBERED :], held.take.id)
    rest = {number: other for number, other in state.held.items() if number != held.take.id}
    return state._replace(held=rest, given_back=given_back), () if mine or held.resent else (v.Disown(held.take),)


def missing(state: State, ids: Iterable[int]) -> Outcome:
    """Celery knew nothing of these at a beat."""
    commands: list[v.Command] = []
    for number in ids:
        held = state.held.get(number)
        if held is None or held.stage not in ("delivered", "running"):
            continue
        held = held._replace(missed=held.missed + 1)
        state = noted(state, held)
        if held.missed >= FORGOTTEN_BEATS:
            end = End("back", "head", 1, reason=held.crashed or "forgotten", text=held.text)
            state, ended = end_with(state, held, end)
            commands += ended
    return state, commands


def noted(state: State, *takes: Held) -> State:
    """The state with these takes as they are now."""
    return state._replace(held={**state.held, **{h.take.id: h for h in takes}}) if takes else state
