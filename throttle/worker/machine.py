r"""Every decision of a worker, as one pure function: `step(state, event) -> (state, commands)`.

No clock, no thread, no connection, no chance: what a worker does under any order of answers, losses and signals can be
tried in microseconds, and is (`tests/worker/test_machine.py`). The driver runs the commands in their order and feeds
what came of them back as events.

The channel
===========
======  ==================  ===========================================================================
phase   event               then
======  ==================  ===========================================================================
\\      polled              may take, and runs nothing that must run alone: TAKE, phase take
take    a message           may still take: deliver it; else back to the head of its queue
take    nothing             stale: TAKE again; credit: wait for the bell, phase bell
take    LOST                ask by BEAT whether we are a member
take    anything            the acknowledgements that went along are over; more of them: TAKE again
bell    rung (or timeout)   credit: TAKE, phase take
any     connection cut      nothing is under way; the next TAKE asks under the same id
======  ==================  ===========================================================================

A take id is asked until an answer was seen and never used again, whatever incarnation asks: TAKE is idempotent on it,
so an answer that was lost on the way leaves no message behind.

A critical message must not wait behind a long task while another pod is idle. So the critical queues are offered only
while a place of the pool is free; when one becomes free during the wait for the bell, the worker registers anew.

The ends
========
==========================  ===================================================================
Celery says                 then
==========================  ===================================================================
ack                         ACK, with the next TAKE if one follows (see `ends`); while its task runs
                            (`acks_late=False`) EMPTY, and ACK at its end
reject, requeue             a crash: head, counted; `Reject(requeue=True)`: tail; never ran: head
reject, ack of what nobody  dead letter, with the reason
can run
nothing, for three beats    it has forgotten the message: head, counted
==========================  ===================================================================

An end that does not get through is *owed*, and so are those that follow: all are sent again after the next beat or
join, so that a Redis which is away is not asked once for each. Until then the take belongs to what JOIN tells the fleet
that we run, and a Redis that lost its data holds it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from throttle.scripts import Empty, Stale, Take
from throttle.worker import ends
from throttle.worker import vocabulary as v
from throttle.worker.state import End, Held, State

if TYPE_CHECKING:
    from throttle.worker.ends import Outcome


def step(state: State, event: v.Event) -> Outcome:  # noqa: C901, PLR0911, PLR0912 - one line for each event
    """The state after `event`, and what to do about it, in this order."""
    match event:
        case v.Polled(places):
            asks = not state.phase and state.may_take and not state.runs_alone
            return _ask(state, places=places) if asks else (state, ())
        case v.Answered():
            return _answered(state, event)
        case v.Rung() | v.Unknown():
            return _ask_again(state, event)
        case v.AcksLeft():
            return (state, ()) if state.phase == "take" else ends.send_acks(state)
        case v.Cut():
            return ends.unanswered(state), ()
        case v.Reopened(kept):
            return _reopened(state, kept)
        case v.Poked():
            return _poked(state)
        case v.PlaceFreed():
            return (state, ()) if state.offered else _poked(state)
        case v.BeatDue(boot):
            return _beat_due(state, boot)
        case v.Beaten():
            return _beaten(state, event)
        case v.Joined():
            return _joined(state, event)
        case v.Clashed(clash):
            lives = state.rival and state.rival.other == clash.other and state.rival.beat_ms < clash.beat_ms
            return state._replace(rival=clash), (v.Refuse(clash.other),) if lives else ()
        case v.DrainAsked():
            return _drain(state)
        case v.LeaveAsked():
            return _leave(state)
        case v.Missing(ids):
            return ends.missing(state, ids)
        case _:
            return _of_a_take(state, event)


def _of_a_take(state: State, event: v.Event) -> Outcome:  # noqa: C901, PLR0911 - one line for each event
    """Events that concern one take; those that concern none that we know are late, and nothing follows."""
    held = state.held.get(event.id) if isinstance(event, _TAKE_EVENTS) else None
    if held is None or (state.membership == "left" and not isinstance(event, v.Settled | v.Unsettled)):
        return state, ()
    goes_on = held.stage != "ending"
    match event:
        case v.Started():
            return ends.noted(state, held._replace(stage="running") if held.stage == "delivered" else held), ()
        case v.Failed(_, crash, text):
            return ends.noted(state, held._replace(crashed=crash, text=text)), ()
        case v.Condemned(_, reason, text):
            return ends.noted(state, held._replace(condemned=reason, text=text)), ()
        case v.Acked(_, busy, follows):
            return ends.acked(state, held, busy=busy, follows=follows)
        case v.Rejected(_, requeue) if goes_on and held.stage != "emptied":
            return ends.end_with(state, held, ends.rejection(held) if requeue else ends.dead(held))
        case v.Finished(_, follows) if held.stage == "emptied":
            return ends.end_with(state, held, End("ack"), follows=follows)
        case v.Parked(_, due_ms) if goes_on:
            return ends.end_with(state, held, End("park", due_ms=due_ms))
        case v.Settled(_, mine) if held.stage == "ending":
            return ends.settled(state, held, mine=mine)
        case v.Due():
            return ends.due(state, held)
        case v.Unsettled():
            return ends.noted(state, held._replace(owed=True))._replace(reachable=False), ()
        case _:
            return state, ()


_TAKE_EVENTS = (
    v.Started, v.Failed, v.Condemned, v.Acked, v.Rejected, v.Finished, v.Parked, v.Settled, v.Due,
    v.Unsettled,
)  # fmt: skip


# ---------------------------------------------------------------- the channel


def _ask(state: State, *, places: bool) -> Outcome:
    state, alone = ends.send_acks(state, but_of=state.member)
    acks = state.pending_acks
    asked = state._replace(
        phase="take", asked=state.member, offered=places, poked=False, sent_acks=acks, pending_acks=()
    )
    return asked, (*alone, v.SendTake(state.member, state.next_id, places, acks))


def _ask_again(state: State, event: v.Rung | v.Unknown) -> Outcome:
    if state.phase != ("bell" if isinstance(event, v.Rung) else "take"):
        return state, ()
    idle = ends.unanswered(state)
    return _ask(idle, places=event.places) if state.may_take and event.credit else (idle, ())


def _answered(state: State, event: v.Answered) -> Outcome:
    if state.phase != "take":
        return state, ()
    state, over = ends.acks_answered(state, event.not_mine)
    state, commands = _answer(state, event)
    return state, (*over, *commands) if over else commands


def _answer(state: State, event: v.Answered) -> Outcome:  # noqa: PLR0911 - one line for each answer
    answer, idle = event.answer, state._replace(phase="")
    if isinstance(answer, Take):
        held = Held(answer, state.asked)
        took = ends.noted(idle._replace(next_id=answer.id + 1), held)
        if state.may_take and state.asked == state.member:
            return took, (v.Deliver(answer, state.asked),)
        return ends.end_with(took, held, End("back"))
    if isinstance(answer, Empty):
        watch = () if answer.watched else (v.Watch(),)
        if not (state.may_take and event.credit):
            return idle, watch
        stale = state.poked or state.asked != state.member or (event.places and not state.offered)
        if stale or state.pending_acks:
            asked, commands = _ask(idle, places=event.places)
            return asked, (*commands, *watch)
        return state._replace(phase="bell"), (v.SendBell(state.member), *watch)
    if isinstance(answer, Stale):
        return idle._replace(next_id=state.next_id + 1), (v.Kick(),)
    if state.membership == "living" and state.asked == state.member:
        return idle._replace(membership="suspect"), (v.SendBeat(state.member),)
    return idle, ()


def _poked(state: State) -> Outcome:
    if not state.phase or (state.poked and state.phase == "bell"):
        return state, ()
    return state._replace(poked=True), (v.Poke(state.asked),) if state.phase == "bell" else ()


def _reopened(state: State, kept: frozenset[int]) -> Outcome:
    """A new connection: join again (Redis may have lost or rolled back its data), then return what Celery dropped.

    Its way back is owed until the JOIN got through: it may be what makes Redis hold it again, under another member.
    """
    if state.membership == "left":
        return state, ()
    state = ends.unanswered(state)._replace(membership="out")
    for held in state.held.values():
        if held.take.id not in kept and held.stage != "ending":
            end = End("ack") if held.stage == "emptied" else End("back")
            state = ends.noted(state, held._replace(stage="ending", end=end, owed=True))
    return state, (_join(state),) if state.member else ()


# ---------------------------------------------------------------- the membership


def _beat_due(state: State, boot: str) -> Outcome:
    if state.membership == "left":
        return state, ()
    if state.membership == "out":
        state = state if state.member else _incarnate(state, boot)
        return state, (_join(state),)
    return state, (v.SendBeat(state.member),)


def _beaten(state: State, event: v.Beaten) -> Outcome:
    if event.member != state.member or state.membership == "left":
        return state, ()
    if event.standing == "lost":  # what is pending waits: a Redis that lost its data holds it again with this JOIN
        state = _incarnate(state._replace(membership="out"), event.boot)
        return state, (_join(state),)
    state, acks = ends.send_acks(state)
    match event.standing:
        case "living":
            woken = (v.Kick(),) if state.membership == "suspect" else ()
            again = (v.SendDrain(state.member),) if state.drain else ()
            state, owed = ends.send_owed(state._replace(membership="living"))
            return state, (*again, *acks, *owed, *woken)
        case "draining":
            state, owed = ends.send_owed(state._replace(membership="living", drain=True))
            return state, (*acks, *owed)
        case _:
            assert_never(event.standing)


def _joined(state: State, event: v.Joined) -> Outcome:
    if event.member != state.member or state.membership == "left":
        return state, ()
    held = state.held
    if state.epoch not in ("", event.epoch):  # Redis lost its data and holds for this member again what it runs
        held = {number: h._replace(owner=event.member) for number, h in held.items()}
    state, owed = ends.send_owed(state._replace(membership="living", epoch=event.epoch, held=held, rival=None))
    state, poke = _poked(state)
    return state, (*owed, *poke, v.Kick())


def _drain(state: State) -> Outcome:
    member = state.membership in ("living", "suspect")
    state, acks = ends.send_acks(state._replace(drain=True))
    return state, (*acks, v.SendDrain(state.member)) if member else acks


def _leave(state: State) -> Outcome:
    """Ends go before LEAVE, which returns what has none. Asked again, it tells again what was not heard."""
    if not state.member:
        return state._replace(membership="left", phase=""), ()
    state, acks = ends.send_acks(ends.unanswered(state))
    state, owed = ends.send_owed(state._replace(membership="left"))
    return state, (*acks, *owed, v.Leave(state.member))


def _incarnate(state: State, boot: str) -> State:
    return state._replace(member=f"{state.pod}#{boot}", rival=None)


def _join(state: State) -> v.Join:
    running = tuple(h.take for h in state.held.values())
    emptied = frozenset(n for n, h in state.held.items() if h.stage == "emptied")
    return v.Join(state.member, state.drain, state.epoch, state.next_id, running, emptied, state.given_back)
