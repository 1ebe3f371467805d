"""The worker's state machine without Redis, Celery, clock or thread.

First the decisions one by one, in the words of the module's tables. Then a property test: hypothesis plays the fleet's
server, the network, Celery and the signals against the machine, in any order and with any loss, and after each move
the promises must hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from throttle.scripts import Clash, Empty, Lost, Stale, Take
from throttle.worker import vocabulary as v
from throttle.worker.ends import FORGOTTEN_BEATS
from throttle.worker.machine import step
from throttle.worker.state import End, Held, State, alone_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from throttle.scripts import Standing

C = TypeVar("C")
ME, OTHER = "pod#1", "pod#2"


def take(number: int = 1, *, deliveries: int = 0) -> Take:
    return Take(number, number * 10, deliveries, b"queue", b"raw%d" % number)


LIVING = State("pod", membership="living", member=ME, epoch="e")
TAKING = LIVING._replace(phase="take", asked=ME, offered=True)
WAITING = TAKING._replace(phase="bell")


def holding(state: State = LIVING, **held: Any) -> State:
    return state._replace(next_id=2, held={1: Held(take(), ME)._replace(**held)})


def after(state: State, *events: v.Event) -> tuple[State, list[v.Command]]:
    commands: list[v.Command] = []
    for event in events:
        state, more = step(state, event)
        commands += more
    return state, commands


def only(kind: type[C], commands: Sequence[object]) -> C:
    found = [command for command in commands if isinstance(command, kind)]
    assert len(found) == 1, commands
    return found[0]


# ---------------------------------------------------------------- the channel


def test_a_living_member_takes_and_offers_the_critical_queues_while_a_place_is_free() -> None:
    for places in (True, False):
        state, commands = step(LIVING, v.Polled(places))
        assert state.phase == "take"
        assert commands == (v.SendTake(ME, 1, places),)


@pytest.mark.parametrize(
    "state",
    [
        State("pod"),
        LIVING._replace(membership="suspect"),
        LIVING._replace(membership="out"),
        LIVING._replace(membership="left"),
        LIVING._replace(drain=True),
        TAKING,
        WAITING,
    ],
)
def test_nobody_else_takes(state: State) -> None:
    assert step(state, v.Polled(places=True)) == (state, ())


def test_nothing_is_taken_beside_a_message_that_has_few_deliveries_left() -> None:
    wary = LIVING._replace(alone_from=3)
    alone = holding(wary, take=take(deliveries=3), stage="running")
    assert step(alone, v.Polled(places=True)) == (alone, ())
    for state in (
        holding(wary, take=take(deliveries=2), stage="running"),
        holding(wary, take=take(deliveries=3), stage="ending", end=End("ack")),
        holding(take=take(deliveries=9), stage="running"),
    ):
        only(v.SendTake, step(state, v.Polled(places=True))[1])


def test_the_last_two_deliveries_are_made_alone() -> None:
    assert [alone_from(limit) for limit in (1, 2, 3, 5, 100)] == [0, 1, 1, 3, 98]


def test_a_message_is_delivered_and_its_id_is_used_up() -> None:
    state, commands = step(TAKING, v.Answered(take(), credit=True, places=True))
    assert (state.phase, state.next_id) == ("", 2)
    assert state.held == {1: Held(take(), ME)}
    assert commands == (v.Deliver(take(), ME),)


@pytest.mark.parametrize(
    "change", [{"drain": True}, {"membership": "out"}, {"membership": "suspect"}, {"member": OTHER}]
)
def test_a_message_that_comes_too_late_goes_back_to_the_head(change: dict[str, Any]) -> None:
    changed = TAKING._replace(**change)
    state, commands = step(changed, v.Answered(take(), credit=True, places=True))
    assert only(v.SendEnd, commands) == v.SendEnd(ME, 1, End("back"), keep=False)
    assert state.next_id == 2


def test_nothing_to_take_means_waiting_for_the_bell_and_a_bell_means_taking() -> None:
    state, commands = step(TAKING, v.Answered(Empty(denied=True), credit=True, places=True))
    assert (state.phase, commands) == ("bell", (v.SendBell(ME),))
    state, commands = step(state, v.Rung(credit=True, places=True))
    assert (state.phase, commands) == ("take", (v.SendTake(ME, 1, critical=True),))


def test_without_credit_nothing_more_is_asked() -> None:
    assert step(TAKING, v.Answered(Empty(denied=False), credit=False, places=True))[0].phase == ""
    assert step(WAITING, v.Rung(credit=False, places=True))[0].phase == ""


def test_a_poke_makes_the_answer_under_way_stale() -> None:
    state, commands = step(TAKING, v.Poked())
    assert commands == ()
    state, commands = step(state, v.Answered(Empty(denied=False), credit=True, places=True))
    assert commands == (v.SendTake(ME, 1, critical=True),)
    assert not state.poked


def test_a_poke_ends_the_wait_for_the_bell() -> None:
    state, commands = step(WAITING, v.Poked())
    assert commands == (v.Poke(ME),)
    assert step(state, v.Poked())[1] == (), "once is enough"
    assert step(LIVING, v.Poked()) == (LIVING, ())


def test_a_free_place_is_news_only_where_the_critical_queues_were_not_offered() -> None:
    assert step(WAITING, v.PlaceFreed()) == (WAITING, ())
    assert step(WAITING._replace(offered=False), v.PlaceFreed())[1] == (v.Poke(ME),)
    state, commands = step(TAKING._replace(offered=False), v.Answered(Empty(denied=False), credit=True, places=True))
    assert commands == (v.SendTake(ME, 1, critical=True),)
    assert state.offered


def test_the_same_id_is_asked_again_when_the_answer_was_cut_off_or_the_script_unknown() -> None:
    state, _ = step(TAKING, v.Cut())
    assert step(state, v.Polled(places=True))[1] == (v.SendTake(ME, 1, critical=True),)
    assert step(TAKING, v.Unknown(credit=True, places=True))[1] == (v.SendTake(ME, 1, critical=True),)
    assert step(state, v.Answered(take(), credit=True, places=True)) == (state, ())


def test_where_there_is_no_doorkeeper_we_offer_to_be_it() -> None:
    unwatched = v.Answered(Empty(denied=False, watched=False), credit=True, places=True)
    only(v.Watch, step(TAKING, unwatched)[1])
    only(v.Watch, step(TAKING._replace(poked=True), unwatched)[1])


# ---------------------------------------------------------------- the membership


def test_the_first_beat_joins_and_a_repetition_joins_under_the_same_name() -> None:
    state, commands = step(State("pod"), v.BeatDue("1"))
    assert commands == (v.Join(ME, draining=False, epoch="", next_id=1, running=(), emptied=frozenset()),)
    assert step(state, v.BeatDue("2"))[1] == commands
    state, commands = step(state, v.Joined(ME, "e"))
    assert state.may_take
    assert commands == (v.Kick(),)
    assert step(state, v.BeatDue("3"))[1] == (v.SendBeat(ME),)


def test_a_lost_answer_asks_by_beat_before_anything_else() -> None:
    state, commands = step(TAKING, v.Answered(Lost(), credit=True, places=True))
    assert (state.membership, commands) == ("suspect", (v.SendBeat(ME),))
    revived, commands = step(state, v.Beaten(ME, "living", "2"))
    assert revived.may_take
    assert commands == (v.Kick(),)
    gone, commands = step(state, v.Beaten(ME, "lost", "2"))
    assert only(v.Join, commands).member == OTHER
    assert not gone.may_take


def test_a_join_tells_all_that_has_not_surely_ended_and_what_of_it_is_acknowledged() -> None:
    held = {
        1: Held(take(1), ME, stage="emptied"),
        2: Held(take(2), ME),
        3: Held(take(3), ME, stage="ending", end=End("back"), owed=True),
    }
    join = only(v.Join, step(LIVING._replace(held=held, next_id=4), v.Beaten(ME, "lost", "2"))[1])
    assert join == v.Join(
        OTHER, draining=False, epoch="e", next_id=4, running=(take(1), take(2), take(3)), emptied=frozenset({1})
    )


def test_takes_stay_their_old_members_unless_redis_lost_its_data() -> None:
    lost, _ = step(holding(), v.Beaten(ME, "lost", "2"))
    same, _ = step(lost, v.Joined(OTHER, "e"))
    other, _ = step(lost, v.Joined(OTHER, "f"))
    assert (same.held[1].owner, other.held[1].owner) == (ME, OTHER)


def test_answers_about_an_earlier_incarnation_are_not_ours() -> None:
    lost, _ = step(LIVING, v.Beaten(ME, "lost", "2"))
    assert step(lost, v.Beaten(ME, "lost", "3")) == (lost, ())
    assert step(lost, v.Joined(ME, "e")) == (lost, ())


def test_a_clash_is_refused_only_when_the_other_beats() -> None:
    state, commands = step(State("pod"), v.Clashed(Clash(OTHER, 1000)))
    assert commands == ()
    state, commands = step(state, v.Clashed(Clash(OTHER, 1000)))
    assert commands == ()
    assert step(state, v.Clashed(Clash("pod#3", 2000)))[1] == ()
    assert step(state, v.Clashed(Clash(OTHER, 1001)))[1] == (v.Refuse(OTHER),)


def test_a_reconnect_joins_first_and_then_returns_what_celery_dropped_newest_first() -> None:
    held = {
        1: Held(take(1), ME, stage="running"),
        2: Held(take(2), ME),
        3: Held(take(3), ME),
        4: Held(take(4), ME, stage="emptied"),
        5: Held(take(5), ME, stage="ending", end=End("ack")),
    }
    state, commands = step(WAITING._replace(held=held, next_id=6), v.Reopened(frozenset({1})))
    assert [type(command) for command in commands] == [v.Join]
    assert (state.phase, state.membership) == ("", "out")
    after_join = step(state, v.Joined(ME, "e"))[1]
    assert [c.id for c in after_join if isinstance(c, v.SendEnd)] == [4, 3, 2]
    assert [c.end.how for c in after_join if isinstance(c, v.SendEnd)] == ["ack", "back", "back"]


def test_what_a_reconnect_drops_goes_back_as_who_holds_it_after_the_join() -> None:
    """Redis lost its data: JOIN, under another member, makes it hold everything anew."""
    state = holding()._replace(member=OTHER)
    state, _ = step(state, v.Reopened(frozenset()))
    commands = step(state, v.Joined(OTHER, "another epoch"))[1]
    assert only(v.SendEnd, commands).owner == OTHER


def test_a_drain_from_outside_stops_taking() -> None:
    state, _ = step(LIVING, v.Beaten(ME, "draining", "2"))
    assert not state.may_take


def test_a_drain_that_did_not_get_through_is_repeated() -> None:
    state, commands = step(LIVING, v.DrainAsked())
    assert commands == (v.SendDrain(ME),)
    assert step(state, v.Beaten(ME, "living", "2"))[1] == (v.SendDrain(ME),)


def test_leaving_ends_everything_and_may_be_repeated() -> None:
    state, commands = step(holding(), v.LeaveAsked())
    assert commands == (v.Leave(ME),)
    for event in (v.BeatDue("2"), v.Polled(places=True), v.Acked(1, busy=False, follows=True)):
        assert step(state, event)[1] == ()
    assert step(state, v.LeaveAsked())[1] == (v.Leave(ME),)


def test_who_leaves_tells_the_ends_that_are_owed_first_each_time() -> None:
    """LEAVE returns the message of what has not ended, so an end that comes after it is none."""
    owing, _ = after(holding(), v.Acked(1, busy=False, follows=False), v.Unsettled(1))
    left, commands = step(owing, v.LeaveAsked())
    assert commands == (ALONE, v.Leave(ME))
    failed, _ = step(left, v.Unsettled(1))
    assert failed.held[1].owed
    told, commands = step(failed, v.LeaveAsked())
    assert commands == (ALONE, v.Leave(ME))
    done, _ = step(told, v.Settled(1, mine=True))
    assert done.held == {}


# ---------------------------------------------------------------- the ends


ALONE = v.SendEnd(ME, 1, End("ack"), keep=False)


def test_an_acknowledgement_goes_alone_where_no_take_follows_at_once() -> None:
    cases: list[tuple[State, bool]] = [
        (holding(), False),
        (holding(WAITING), True),
        (holding(LIVING._replace(drain=True)), True),
        (holding(LIVING._replace(membership="out")), True),
        (holding(owner=OTHER), True),
    ]
    for state, follows in cases:
        alone = ALONE._replace(owner=state.held[1].owner)
        assert step(state, v.Acked(1, busy=False, follows=follows))[1] == (alone, v.Credit(1))


@pytest.mark.parametrize("state", [LIVING, TAKING])
def test_else_it_goes_with_the_next_take_and_stays_held_until_that_is_answered(state: State) -> None:
    acked, commands = step(holding(state), v.Acked(1, busy=False, follows=True))
    assert commands == (v.Credit(1),)
    assert acked.pending_acks == (1,)
    if state.phase:  # the TAKE under way knows nothing of it, and finds nothing
        asked, commands = step(acked, v.Answered(Empty(denied=True, watched=True), credit=True, places=True))
    else:
        asked, commands = step(acked, v.Polled(places=True))
    assert commands == (v.SendTake(ME, 2, critical=True, acks=(1,)),)
    assert asked.held[1].stage == "ending"
    done, commands = step(asked, v.Answered(take(2), credit=True, places=True))
    assert commands == (v.Deliver(take(2), ME),)
    assert (done.held.keys(), done.sent_acks, done.pending_acks) == ({2}, (), ())


def test_one_that_was_not_ours_is_noted_unless_it_was_sent_before() -> None:
    asked, _ = after(holding(), v.Acked(1, busy=False, follows=True), v.Polled(places=True))
    not_mine = v.Answered(Lost(), credit=True, places=True, not_mine=frozenset({1}))
    assert v.Disown(take()) in step(asked, not_mine)[1]
    again, commands = after(asked, v.Cut(), v.Polled(places=True))
    assert commands == [v.SendTake(ME, 2, critical=True, acks=(1,))]
    assert v.Disown(take()) not in step(again, not_mine)[1]


@pytest.mark.parametrize(
    "event",
    [v.AcksLeft(), v.DrainAsked(), v.LeaveAsked(), v.Beaten(ME, "living", "2"), v.Beaten(ME, "draining", "2")],
)
def test_it_goes_alone_after_all_when_the_take_does_not_come(event: v.Event) -> None:
    acked, _ = step(holding(), v.Acked(1, busy=False, follows=True))
    state, commands = step(acked, event)
    assert commands[0] == ALONE
    assert state.pending_acks == ()
    assert ALONE not in step(state, event)[1]
    assert event == v.LeaveAsked() or step(state, v.Settled(1, mine=True))[0].held == {}


def test_it_waits_for_a_join_that_may_hold_it_again() -> None:
    acked, _ = step(holding(), v.Acked(1, busy=False, follows=True))
    lost, commands = step(acked, v.Beaten(ME, "lost", "2"))
    assert only(v.Join, commands).running == (take(),)
    assert len(commands) == 1
    _, commands = after(lost, v.Joined(OTHER, "f"), v.Polled(places=True))
    assert only(v.SendTake, commands) == v.SendTake(OTHER, 2, critical=True, acks=(1,))


def test_one_of_a_member_that_was_taken_for_dead_goes_alone_once_and_the_pod_waits() -> None:
    """It would have no effect with a TAKE of who the pod is now, however often."""
    acked, _ = step(holding(), v.Acked(1, busy=False, follows=True))
    joined, _ = after(acked, v.Beaten(ME, "lost", "2"), v.Joined(OTHER, LIVING.epoch))
    asked, commands = step(joined, v.Polled(places=True))
    assert commands == (ALONE, v.SendTake(OTHER, 2, critical=True))
    told, commands = step(asked, v.Settled(1, mine=False))
    assert commands == (v.Disown(take()),)
    assert told.held == {}
    waits, commands = step(told, v.Answered(Empty(denied=False, watched=True), credit=True, places=True))
    assert commands == (v.SendBell(OTHER),)
    assert waits.phase == "bell"


def test_one_that_redis_holds_again_after_it_lost_its_data_goes_once_more() -> None:
    """It was done before, by the TAKE whose answer is read only after the JOIN that told of it as of what runs."""
    asked, _ = after(holding(), v.Acked(1, busy=False, follows=True), v.Polled(places=True))
    joined, _ = after(asked, v.Beaten(ME, "lost", "2"), v.Joined(OTHER, "f"))
    answered, commands = step(joined, v.Answered(Empty(denied=False), credit=True, places=True))
    assert only(v.SendTake, commands) == v.SendTake(OTHER, 2, critical=True, acks=(1,))
    done, commands = step(answered, v.Answered(Empty(denied=False), credit=True, places=True))
    assert done.held == {}
    assert not [command for command in commands if isinstance(command, v.Disown)]


def test_what_is_on_its_way_is_not_sent_twice_but_by_who_leaves() -> None:
    asked, _ = after(holding(), v.Acked(1, busy=False, follows=True), v.Polled(places=True))
    assert step(asked, v.AcksLeft()) == (asked, ())
    assert step(asked, v.DrainAsked())[1] == (v.SendDrain(ME),)
    assert step(asked, v.LeaveAsked())[1] == (ALONE, v.Leave(ME))


def test_an_early_acknowledgement_empties_and_the_end_of_the_task_ends_it() -> None:
    state, commands = step(holding(stage="running"), v.Acked(1, busy=True, follows=True))
    assert commands == (v.SendEmpty(ME, 1),)
    state, commands = step(state, v.Finished(1, follows=True))
    assert commands == (v.SendEnd(ME, 1, End("ack"), keep=True), v.Credit(1))
    assert step(state, v.Finished(1, follows=True))[1] == ()


@pytest.mark.parametrize(
    ("held", "event", "end"),
    [
        ({"stage": "running"}, v.Rejected(1, requeue=True), End("back", "tail")),
        ({"stage": "delivered"}, v.Rejected(1, requeue=True), End("back", "head")),
        (
            {"stage": "running", "crashed": "crashed", "text": "9"},
            v.Rejected(1, requeue=True),
            End("back", "head", 1, reason="crashed", text="9"),
        ),
        ({"text": "no"}, v.Rejected(1, requeue=False), End("back", "dead", 1, "rejected", text="no")),
        ({"condemned": "unknown"}, v.Rejected(1, requeue=False), End("back", "dead", 1, "unknown")),
        ({"condemned": "undecodable"}, v.Acked(1, busy=False, follows=True), End("back", "dead", 1, "undecodable")),
        ({}, v.Parked(1, 5000), End("park", due_ms=5000)),
    ],
)
def test_how_a_take_ends(held: dict[str, Any], event: v.Event, end: End) -> None:
    commands = step(holding(**held), event)[1]
    assert commands == (v.SendEnd(ME, 1, end, keep=False), v.Credit(1))


def test_a_take_that_celery_forgot_goes_back_after_three_beats() -> None:
    state, commands = after(holding(), *[v.Missing(frozenset({1}))] * (FORGOTTEN_BEATS - 1))
    assert commands == []
    commands = step(state, v.Missing(frozenset({1})))[1]
    assert only(v.SendEnd, commands).end == End("back", "head", 1, reason="forgotten")


def test_what_did_not_get_through_is_sent_again_and_redis_is_not_asked_meanwhile() -> None:
    state = holding()._replace(held={1: Held(take(1), ME), 2: Held(take(2), ME, stage="running")})
    state, _ = after(state, v.Acked(1, busy=False, follows=False), v.Unsettled(1))
    state, commands = step(state, v.Acked(2, busy=False, follows=True))
    assert commands == (v.Credit(2),)
    state, commands = step(state, v.Beaten(ME, "living", "2"))
    assert [c.id for c in commands if isinstance(c, v.SendEnd)] == [2, 1], "the newest first: one head may take both"
    assert step(state, v.Beaten(ME, "living", "2"))[1] == ()


def test_a_take_that_was_not_ours_any_more_is_noted() -> None:
    state, _ = step(holding(), v.Acked(1, busy=False, follows=True))
    assert step(state, v.Settled(1, mine=True))[1] == ()
    state, commands = step(state, v.Settled(1, mine=False))
    assert commands == (v.Disown(take()),)
    assert state.held == {}


def test_a_second_answer_about_a_take_tells_nothing_when_the_first_was_lost() -> None:
    state, _ = after(holding(), v.Acked(1, busy=False, follows=True), v.Unsettled(1), v.Beaten(ME, "living", "2"))
    assert step(state, v.Settled(1, mine=False))[1] == ()


def test_a_number_that_was_used_before_is_not_asked_again() -> None:
    state, commands = step(TAKING._replace(next_id=7), v.Answered(Stale(), credit=True, places=True))
    assert (state.phase, state.next_id) == ("", 8)
    assert commands == (v.Kick(),)


def test_what_is_due_when_it_is_parked_is_delivered_by_who_parked_it() -> None:
    state, _ = step(holding(), v.Parked(1, 5))
    state, commands = step(state, v.Due(1))
    assert state.held == {1: Held(take(), ME)}
    assert commands == ()


def test_what_is_due_when_it_is_parked_late_goes_back() -> None:
    """Nobody stands ready to deliver it any more."""
    state, _ = after(holding(), v.Parked(1, 5), v.Unsettled(1), v.Beaten(ME, "living", "2"))
    assert only(v.SendEnd, step(state, v.Due(1))[1]).end == End("back")


@pytest.mark.parametrize(("end", "told"), [(End("back"), (1,)), (End("park"), (1,)), (End("ack"), ())])
def test_a_join_tells_what_was_given_back(end: End, told: tuple[int, ...]) -> None:
    state, _ = step(holding(stage="ending", end=end), v.Settled(1, mine=True))
    assert only(v.Join, step(state, v.Beaten(ME, "lost", "2"))[1]).given_back == told


# ---------------------------------------------------------------- everything at once


class Worker(RuleBasedStateMachine):
    """The machine against a server, a network, a Celery and a fate that hypothesis thinks up.

    The server is a dictionary with the operations' meaning: members, what they hold, one queue. `away` makes every
    command fail; `deaf` does what it is told and loses the answer. Its promises are checked after each move.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = State("pod")
        self.queue = list(range(1, 13))
        self.done: list[int] = []
        self.dead: list[int] = []
        self.members: dict[str, Standing] = {}
        self.held: dict[str, dict[int, int]] = {}
        self.emptied: dict[str, set[int]] = {}
        self.epoch, self.boots, self.seq = "e1", 0, 0
        self.away = self.deaf = False
        self.answer: Take | Empty | Lost | None = None
        self.not_mine: frozenset[int] = frozenset()
        self.celery: dict[int, str] = {}
        """take id -> delivered, running, early: what Celery works on"""
        self.ids: dict[int, int] = {}
        """take id -> message: an id must never mean a second one"""
        self.refused = False

    # -- running commands, as the driver does

    def feed(self, event: v.Event) -> None:
        events = [event]
        while events:
            self.state, commands = step(self.state, events.pop(0))
            for command in commands:
                events += self.run(command)

    def run(self, command: v.Command) -> list[v.Event]:
        if isinstance(command, v.SendTake):
            assert self.state.may_take, "asked for work without being allowed to"
            assert {self.state.held[n].owner for n in command.acks} <= {command.member}, "acks that have no effect"
            self.answer = self.take(command)
            return []
        if isinstance(command, v.SendBell):
            assert self.state.may_take
            return []
        if isinstance(command, v.Deliver):
            message = int(command.take.raw)
            assert self.ids.setdefault(command.take.id, message) == message, "a take id was used twice"
            assert command.take.id not in self.celery, "delivered twice"
            assert not self.state.drain, "delivered while draining"
            self.celery[command.take.id] = "delivered"
            return []
        if isinstance(command, v.Refuse):
            self.refused = True
        if isinstance(command, v.SendEnd | v.SendEmpty | v.Join | v.SendBeat | v.SendDrain | v.Leave):
            return self.ask(command)
        return []

    def ask(self, command: v.Command) -> list[v.Event]:
        failed: list[v.Event] = [v.Unsettled(command.id)] if isinstance(command, v.SendEnd | v.SendEmpty) else []
        if self.away:
            return failed
        answers = self.serve(command)
        return failed if self.deaf else answers

    # -- the server

    def take(self, command: v.SendTake) -> Take | Empty | Lost | None:
        if self.away:
            return None
        self.not_mine = frozenset(n for n in command.acks if not self.end(command.member, n, End("ack")))
        if self.members.get(command.member) != "living":
            return Lost()
        mine = self.held[command.member]
        if command.id not in mine:
            if not self.queue:
                return Empty(denied=False)
            self.seq += 1
            mine[command.id] = self.queue.pop(0)
        return Take(command.id, self.seq, 0, b"queue", str(mine[command.id]).encode())

    def serve(self, command: v.Command) -> list[v.Event]:  # noqa: C901, PLR0912 - an operation each
        self.boots += 1
        boot = f"b{self.boots}"
        match command:
            case v.Join(member, draining, epoch, next_id, running, emptied):
                for old in [m for m in self.members if m != member]:
                    self.gone(old)
                self.members[member] = "draining" if draining else "living"
                mine, empty = self.held.setdefault(member, {}), self.emptied.setdefault(member, set())
                if epoch != self.epoch:
                    for one in running:
                        if one.id in emptied:
                            empty.add(one.id)
                        else:
                            mine[one.id] = int(one.raw)
                kept = {one.id for one in running} | {next_id}
                for number in set(mine) - kept:
                    del mine[number]
                return [v.Joined(member, self.epoch)]
            case v.SendBeat(member):
                return [v.Beaten(member, self.members.get(member, "lost"), boot)]
            case v.SendDrain(member) if member in self.members:
                self.members[member] = "draining"
            case v.Leave(member):
                self.gone(member)
            case v.SendEmpty(owner, number):
                message = self.held.get(owner, {}).pop(number, None)
                if message is not None:
                    self.done.append(message)
                    self.emptied[owner].add(number)
            case v.SendEnd(owner, number, end, _):
                return [v.Settled(number, self.end(owner, number, end))]
            case _:
                pass
        return []

    def end(self, owner: str, number: int, end: End) -> bool:
        if number in self.emptied.get(owner, ()):
            self.emptied[owner].remove(number)
            return True
        message = self.held.get(owner, {}).pop(number, None)
        if message is None:
            return False
        if end.how == "ack":
            self.done.append(message)
        elif end.where == "dead":
            self.dead.append(message)
        else:
            self.queue.insert(0, message)
        return True

    def gone(self, member: str) -> None:
        self.members.pop(member, None)
        self.emptied.pop(member, None)
        self.queue[:0] = [message for _, message in sorted(self.held.pop(member, {}).items())]

    # -- what can happen

    @rule(places=st.booleans())
    def poll(self, *, places: bool) -> None:
        self.feed(v.Polled(places))

    @precondition(lambda self: self.state.phase == "take" and self.answer is not None)
    @rule(credit=st.booleans(), places=st.booleans())
    def be_answered(self, *, credit: bool, places: bool) -> None:
        answer, self.answer = self.answer, None
        assert answer is not None
        self.feed(v.Answered(answer, credit, places, self.not_mine))

    @precondition(lambda self: self.state.phase == "bell")
    @rule(credit=st.booleans(), places=st.booleans())
    def be_rung(self, *, credit: bool, places: bool) -> None:
        self.feed(v.Rung(credit, places))

    @precondition(lambda self: self.state.may_take and not self.state.phase)
    @rule()
    def work_as_ever(self) -> None:
        """A message is taken, done, and acknowledged with the next TAKE, whose answer is awaited."""
        self.feed(v.Polled(places=True))
        if self.answer is not None:
            self.be_answered(credit=True, places=True)
        for number in [number for number, how in self.celery.items() if how == "delivered"][-1:]:
            del self.celery[number]
            self.feed(v.Acked(number, busy=False, follows=True))
            self.feed(v.Polled(places=True))

    @rule()
    def turn(self) -> None:
        """The loop turned."""
        self.feed(v.AcksLeft())

    @rule()
    def be_cut(self) -> None:
        self.answer = None
        self.feed(v.Cut())

    @rule(event=st.sampled_from([v.Poked(), v.PlaceFreed()]))
    def be_poked(self, event: v.Event) -> None:
        self.feed(event)

    @rule()
    def beat(self) -> None:
        self.boots += 1
        self.feed(v.BeatDue(f"b{self.boots}"))

    @rule(flush=st.booleans())
    def reopen(self, *, flush: bool) -> None:
        """A new connection. Celery keeps what runs and drops the rest."""
        self.answer = None
        kept = {number for number, how in self.celery.items() if how in ("running", "early") or not flush}
        self.celery = {number: how for number, how in self.celery.items() if number in kept}
        self.feed(v.Reopened(frozenset(kept)))

    @precondition(lambda self: self.celery)
    @rule(
        data=st.data(),
        how=st.sampled_from(
            ["start", "ack", "early", "finish", "requeue", "reject", "crash", "condemn", "park", "forget"]
        ),
        follows=st.booleans(),
    )
    def work(self, data: st.DataObject, how: str, *, follows: bool) -> None:  # noqa: C901 - what Celery may do
        number = data.draw(st.sampled_from(sorted(self.celery)))
        stage = self.celery[number]
        if how == "start" and stage == "delivered":
            self.celery[number] = "running"
            self.feed(v.Started(number))
        elif how == "early" and stage == "running":
            self.celery[number] = "early"
            self.feed(v.Acked(number, busy=True, follows=follows))
        elif stage == "early":
            if how == "finish":
                del self.celery[number]
                self.feed(v.Finished(number, follows))
        elif how in ("ack", "requeue", "reject", "crash", "condemn", "park", "forget"):
            del self.celery[number]
            if how == "crash":
                self.feed(v.Failed(number, text="why"))
            if how == "condemn":
                self.feed(v.Condemned(number, "why"))
            if how == "forget":
                for _ in range(FORGOTTEN_BEATS):
                    self.feed(v.Missing(frozenset({number})))
            elif how == "park":
                self.feed(v.Parked(number, 1))
            elif how in ("ack", "condemn"):
                self.feed(v.Acked(number, busy=False, follows=follows))
            else:
                self.feed(v.Rejected(number, requeue=how != "reject"))

    @rule(away=st.booleans(), deaf=st.booleans())
    def weather(self, *, away: bool, deaf: bool) -> None:
        self.away, self.deaf = away, deaf

    @rule()
    def be_returned(self) -> None:
        """The fleet takes us for dead."""
        for member in list(self.members):
            self.gone(member)

    @rule()
    def be_drained(self) -> None:
        self.feed(v.DrainAsked())

    # -- what must hold

    @invariant()
    def no_message_is_lost(self) -> None:
        """Each is queued, held, done or dead, as long as Redis keeps its data."""
        places = [*self.queue, *self.done, *self.dead, *(m for held in self.held.values() for m in held.values())]
        assert set(places) == set(range(1, 13)), sorted(places)
        assert len(self.queue) + sum(map(len, self.held.values())) == len({*self.queue}) + sum(
            len(set(held.values())) for held in self.held.values()
        )

    @invariant()
    def what_celery_works_on_is_held_here(self) -> None:
        assert all(number in self.state.held for number in self.celery), (self.celery, self.state.held)

    @invariant()
    def nothing_is_under_way_for_who_left(self) -> None:
        assert self.state.membership != "left" or self.state.phase == ""

    @invariant()
    def acknowledgements_have_their_take(self) -> None:
        """Each is in one place, its take is held until it is answered, and none is left behind in a wait."""
        acks = (*self.state.pending_acks, *self.state.sent_acks)
        assert len(acks) == len(set(acks))
        assert all(self.state.held[number].stage == "ending" for number in acks)
        assert not self.state.sent_acks or self.state.phase == "take"
        assert not self.state.pending_acks or self.state.phase != "bell"

    def teardown(self) -> None:
        """Good weather at last: whatever happened, each take ends, and in the end all that is not done is queued."""
        self.away = self.deaf = False
        self.be_cut()
        for _ in range(3):
            self.beat()
        for number in list(self.celery):
            how = self.celery.pop(number)
            self.feed(
                v.Finished(number, follows=False) if how == "early" else v.Acked(number, busy=False, follows=False)
            )
        assert self.state.held == {}, "a take that never ends"
        awaited = {self.state.next_id}
        for member, held in self.held.items():
            assert {*held, *self.emptied.get(member, ())} <= awaited, "a slot that nobody gives back"
        self.feed(v.LeaveAsked())
        assert not any(self.held.values())
        assert not any(self.emptied.values())
        self.no_message_is_lost()


class LosesItsData(Worker):
    """The same with a server that forgets everything now and then: what runs is held again, nothing else is known."""

    @rule()
    def forget_everything(self) -> None:
        self.members, self.held, self.emptied = {}, {}, {}
        self.epoch = f"e{len(self.epoch)}{self.boots}"

    @invariant()
    def no_message_is_lost(self) -> None:
        """What was in Redis alone is gone; that no take is confused with another holds still."""

    def teardown(self) -> None:
        """As above, without the counting."""
        super().teardown()


TestWorker = Worker.TestCase
TestWorker.settings = settings(
    max_examples=300, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLosesItsData = LosesItsData.TestCase
TestLosesItsData.settings = settings(TestWorker.settings, max_examples=150)
