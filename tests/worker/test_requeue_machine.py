"""The requeue gate's decisions without Redis, Celery, clock or thread.

First the table of the module; then a property test: hypothesis plays the fleet's server and what is lost on the way to
it against the machine, and after each move the promises must hold.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from throttle.worker import requeue_machine as gate
from throttle.worker import vocabulary as v
from throttle.worker.requeue_machine import step
from throttle.worker.state import End, State

if TYPE_CHECKING:
    from throttle.scripts import Standing

ME = "pod#1"
LIVING = State("pod", membership="living", member=ME, epoch="e")
SHUT = LIVING._replace(shut=True)


def permit() -> State:
    """A living member whose first request was let in."""
    return step(LIVING, gate.Acquired(ME, 1, admitted=True))[0]


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize("critical", [True, False])
@pytest.mark.parametrize("state", [LIVING, SHUT])
def test_a_request_asks_for_a_permit_whatever_the_door(state: State, critical: bool) -> None:  # noqa: FBT001
    assert step(state, gate.Requested(critical)) == (state, (gate.Acquire(ME, 1, critical),))


@pytest.mark.parametrize(
    "state",
    [
        State("pod"),
        LIVING._replace(membership="suspect"),
        LIVING._replace(membership="left"),
        LIVING._replace(drain=True),
        LIVING._replace(reachable=False),
    ],
)
def test_nobody_is_asked_while_this_process_may_not_admit(state: State) -> None:
    assert step(state, gate.Requested(critical=True)) == (state, ())
    assert step(state._replace(shut=True), gate.KnockDue())[1] == ()


def test_who_is_admitted_holds_a_permit_until_the_end() -> None:
    state = permit()
    assert (state.held[1].stage, state.next_id, state.shut) == ("emptied", 2, False)
    state, commands = step(state, v.Finished(1, follows=True))
    assert commands == (v.SendEnd(ME, 1, End("ack"), keep=True), v.Credit(1))
    assert step(state, v.Settled(1, mine=True))[0].held == {}


def test_a_permit_that_was_the_fleets_again_is_told_of() -> None:
    state = step(permit(), v.Finished(1, follows=False))[0]
    assert [type(command) for command in step(state, v.Settled(1, mine=False))[1]] == [v.Disown]


def test_who_is_denied_shuts_the_door_and_knocks_when_the_message_is_back() -> None:
    state, commands = step(LIVING, gate.Acquired(ME, 1, admitted=False))
    assert (state, commands) == (SHUT, ())
    assert step(SHUT, gate.PutBack()) == (SHUT, (gate.Listen(),))
    assert step(SHUT, gate.KnockDue()) == (SHUT, (gate.Knock(ME),))
    assert step(SHUT, gate.Knocked(ME, room=False)) == (SHUT, ())
    assert step(SHUT, gate.Knocked(ME, room=True)) == (LIVING, (v.Kick(),))


def test_an_open_door_is_not_knocked_at() -> None:
    assert step(LIVING, gate.PutBack()) == (LIVING, ())
    assert step(LIVING, gate.KnockDue()) == (LIVING, ())


@pytest.mark.parametrize("answer", [gate.Acquired(ME, 1, admitted=None), gate.Knocked(ME, room=None)])
def test_who_is_lost_asks_by_a_beat_and_says_when_it_is_back(answer: gate.GateEvent) -> None:
    state, commands = step(SHUT, answer)
    assert (state.membership, commands) == ("suspect", (v.SendBeat(ME),))
    state, commands = step(state, v.Beaten(ME, "lost", "2"))
    assert isinstance(commands[0], v.Join)
    state, commands = step(state, v.Joined("pod#2", "e"))
    assert state.admits
    assert state.shut
    assert v.Kick() in commands


def test_a_late_answer_for_another_incarnation_changes_nothing() -> None:
    assert step(LIVING, gate.Acquired("pod#0", 1, admitted=None)) == (LIVING, ())


@pytest.mark.parametrize("mine", [True, False])
def test_a_permit_that_may_never_have_been_is_given_back_after_the_next_beat(mine: bool) -> None:  # noqa: FBT001
    state, commands = step(LIVING, gate.Unanswered(ME, 1))
    assert (commands, state.admits, state.next_id) == ((), False, 2)
    state, commands = step(state, v.Beaten(ME, "living", ""))
    assert [command for command in commands if isinstance(command, v.SendEnd)]
    assert v.Kick() in commands
    assert step(state, v.Settled(1, mine=mine)) == (LIVING._replace(next_id=2), ())


def test_a_new_connection_opens_the_door_and_keeps_what_runs() -> None:
    state = permit()._replace(shut=True)
    kept, commands = step(state, v.Reopened(frozenset({1})))
    assert not kept.shut
    assert [type(command) for command in commands] == [v.Join]
    dropped, commands = step(state, v.Reopened(frozenset()))
    assert [type(command) for command in commands] == [v.Join]
    commands = step(dropped, v.Joined(ME, "e"))[1]
    assert [command.end for command in commands if isinstance(command, v.SendEnd)] == [End("ack")]


# ---------------------------------------------------------------- any order, any loss


class Game(RuleBasedStateMachine):
    """One pod against a server whose answers may be lost, in a fleet that others fill and empty."""

    def __init__(self) -> None:
        """A joined pod; one other pod may be busy, capacity is one."""
        super().__init__()
        self.state = State("pod")
        self.member, self.epoch, self.held = "", "e", set[int]()
        self.others_busy = False
        self.away = self.deaf = False
        """Nothing reaches the server; it is reached, but its answers are lost."""
        self.boots = 0
        self.running = set[int]()
        self.refused = 0
        self.beat()

    # the driver and the server in one

    def feed(self, event: v.Event | gate.GateEvent) -> None:
        events: deque[Any] = deque([event])
        while events:
            self.state, commands = step(self.state, events.popleft())
            for command in commands:
                self.run(command, events)

    def run(self, command: Any, events: deque[Any]) -> None:
        answers: deque[Any] = deque()
        if not self.away:
            self.serve(command, answers)
        if not (self.away or self.deaf):
            events += answers
        elif isinstance(command, gate.Acquire):
            events.append(gate.Unanswered(command.member, command.id))
        elif isinstance(command, v.SendEnd):
            events.append(v.Unsettled(command.id))

    def serve(self, command: Any, answers: deque[Any]) -> None:
        match command:
            case gate.Acquire(member, number, critical):
                known = member == self.member
                if known and (critical or not self.others_busy):
                    self.held.add(number)
                answers.append(gate.Acquired(member, number, number in self.held if known else None))
            case gate.Knock(member):
                answers.append(gate.Knocked(member, not self.others_busy if member == self.member else None))
            case v.SendEnd(owner, number):
                mine = owner == self.member and number in self.held
                if mine:
                    self.held.discard(number)
                answers.append(v.Settled(number, mine))
            case v.SendBeat(member):
                self.boots += 1
                standing: Standing = "living" if member == self.member else "lost"
                answers.append(v.Beaten(member, standing, str(self.boots)))
            case v.Join():
                if command.member != self.member:
                    self.held.clear()
                kept = {take.id for take in command.running} | {command.next_id}
                self.held = self.held & kept if command.epoch in ("", self.epoch) else kept - {command.next_id}
                self.member = command.member
                answers.append(v.Joined(command.member, self.epoch))
            case _:
                pass

    # moves

    @rule(critical=st.booleans())
    def request(self, critical: bool) -> None:  # noqa: FBT001 - hypothesis'
        """As the gate does it: ask, then run or put back."""
        number, others = self.state.next_id, self.others_busy
        self.feed(gate.Requested(critical))
        held = self.state.held.get(number)
        if held is not None and held.stage == "emptied":
            assert critical or not others, "admitted against the rule"
            self.running.add(number)
        else:
            self.refused += 1
            self.feed(gate.PutBack())

    @precondition(lambda self: self.running)
    @rule(follows=st.booleans())
    def end(self, follows: bool) -> None:  # noqa: FBT001 - hypothesis'
        number = min(self.running)
        self.running.remove(number)
        self.feed(v.Finished(number, follows))

    @rule(busy=st.booleans())
    def others(self, busy: bool) -> None:  # noqa: FBT001 - hypothesis'
        self.others_busy = busy

    @rule()
    def knock(self) -> None:
        self.feed(gate.KnockDue())

    @rule()
    def beat(self) -> None:
        self.boots += 1
        self.feed(v.BeatDue(str(self.boots)))

    @rule(away=st.booleans(), deaf=st.booleans())
    def network(self, away: bool, deaf: bool) -> None:  # noqa: FBT001 - hypothesis'
        self.away, self.deaf = away, deaf

    @rule()
    def taken_for_dead(self) -> None:
        self.member, self.held = "", set()

    @rule()
    def data_lost(self) -> None:
        self.member, self.epoch, self.held = "", f"{self.epoch}'", set()

    @rule()
    def reconnect(self) -> None:
        self.feed(v.Reopened(frozenset(self.running)))

    # promises

    @invariant()
    def every_permit_is_accounted_for(self) -> None:
        """What the server holds for us runs, or its end is on the way."""
        if self.member == self.state.member:
            assert self.held <= set(self.state.held)

    @invariant()
    def what_runs_is_known(self) -> None:
        held = self.state.held
        assert all(held[number].stage == "emptied" for number in self.running)

    def teardown(self) -> None:
        """Everything reachable, everybody gone, all tasks ended: nothing is held and the door opens."""
        self.away = self.deaf = self.others_busy = False
        for _ in range(3):
            self.beat()
        for number in list(self.running):
            self.running.remove(number)
            self.feed(v.Finished(number, follows=False))
        self.beat()
        self.feed(gate.KnockDue())
        assert self.state.admits
        assert not self.state.shut
        assert self.held == set()
        assert self.state.held == {}


TestGame = Game.TestCase
TestGame.settings = settings(
    max_examples=300, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
