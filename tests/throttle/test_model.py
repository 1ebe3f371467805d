"""The Lua against the model, in random schedules on real servers.

Joins, takes, acknowledgements, kills, freezes, restarts under the same name, drains, time that jumps, SCRIPT FLUSH and
loss of all data.

After each step the whole state in Redis must equal the model's, and each published message must be in exactly one
place. At the end every process dies, a new pod joins, and it must get every message that is left, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.throttle.lab import BEAT_MS, TTL_MS, Lab
from tests.throttle.model import Entry, Model
from throttle.dead import DeadLetters, Outcome
from throttle.scripts import Empty, Joined, Lost, Stale, Take

PODS = ["A", "B", "C", "D", "E"]
LIMIT = 2
which = st.integers(0, 9)


@dataclass
class Process:
    """A worker process as it sees itself."""

    pod: str
    member: str
    epoch: str = ""
    count: int = 0
    draining: bool = False
    dead: bool = False
    runs: dict[int, Entry] = field(default_factory=dict[int, Entry])
    emptied: set[int] = field(default_factory=set[int])
    given_back: set[int] = field(default_factory=set[int])

    def running(self) -> list[Take]:
        return [Take(number, e[0], e[1], e[2].encode(), e[3].encode()) for number, e in self.runs.items()]

    def entries(self) -> dict[int, Entry | None]:
        return {number: None if number in self.emptied else entry for number, entry in self.runs.items()}


class Schedule(RuleBasedStateMachine):
    """One random schedule; `client` and `ratio` are set by the test."""

    client: Any
    ratio: float

    def __init__(self) -> None:
        super().__init__()
        self.client.flushall()
        self.lab = Lab(self.client, ratio=self.ratio, max_deliveries=LIMIT)
        self.ops = self.lab.ops
        self.model = Model(self.ratio, LIMIT, self.lab.now_ms)
        self.processes: list[Process] = []
        self.published: set[tuple[str, str]] = set()
        self.done: set[tuple[str, str]] = set()
        self.flushed = False
        self.boots = self.messages = 0

    # -- helpers of the rules

    def pick(self, index: int) -> Process | None:
        living = [process for process in self.processes if not process.dead]
        return living[index % len(living)] if living else None

    def pass_time(self, ms: int) -> None:
        self.lab.advance(ms)
        self.model.now_ms = self.lab.now_ms

    def beat_one(self, process: Process) -> None:
        assert self.ops.beat(process.member).standing == self.model.beat(process.member)

    def join(self, process: Process) -> bool:
        answer = self.ops.join(
            process.member, epoch=process.epoch, next_id=process.count + 1, draining=process.draining,
            running=process.running(), emptied=process.emptied, given_back=process.given_back,
        )  # fmt: skip
        joined = self.model.join(
            process.member,
            process.epoch,
            process.count + 1,
            process.entries(),
            process.given_back,
            draining=process.draining,
        )
        assert isinstance(answer, Joined) == joined, answer
        if isinstance(answer, Joined):
            assert answer.epoch == self.model.epoch
            process.epoch = answer.epoch
        return joined

    def boot(self, pod: str) -> str:
        self.boots += 1
        return f"{pod}#{self.boots}"

    # -- a fleet at work, before the trouble

    @initialize(pods=st.integers(1, 5), messages=st.integers(0, 12))
    def fleet_at_work(self, pods: int, messages: int) -> None:
        for pod in PODS[:pods]:
            self.start(pod)
        for number in range(messages):
            self.put(["q", "q", "r", "c"][number % 4 : number % 4 + 1])
        for process in self.processes:
            self.take_one(process, ["q", "r"], answer_lost=False)

    # -- time and life

    @rule(ms=st.sampled_from([1, 200, 500, 999, 1001, 1900, 2000, 2100, 4100, 6100, 13000]), beating=st.booleans())
    def advance(self, ms: int, *, beating: bool) -> None:
        self.pass_time(ms)
        if beating:
            for process in self.processes:
                if not process.dead:
                    self.beat_one(process)

    @rule(index=which, beats=st.integers(1, 6))
    def cut_off(self, index: int, beats: int) -> None:
        """One process does not reach Redis (frozen, cut) for some beats; the others do."""
        silent = self.pick(index)
        for _ in range(beats):
            self.pass_time(BEAT_MS)
            for process in self.processes:
                if process is not silent and not process.dead:
                    self.beat_one(process)

    @rule(index=which)
    def beat(self, index: int) -> None:
        if process := self.pick(index):
            self.beat_one(process)

    @rule(pod=st.sampled_from(PODS))
    def start(self, pod: str) -> None:
        """A process starts, be it while another of its name lives."""
        process = Process(pod, self.boot(pod))
        if self.join(process):
            self.processes.append(process)

    @rule(index=which)
    def kill(self, index: int) -> None:
        if process := self.pick(index):
            process.dead = True
            self.forget()

    @rule(index=which, anew=st.booleans())
    def join_again(self, index: int, *, anew: bool) -> None:
        """After a reconnect, or as a new incarnation after the fleet gave the process up."""
        process = self.pick(index)
        if process is None:
            return
        before = process.member
        if before not in self.model.members and anew:
            process.member = self.boot(process.pod)
        if not self.join(process):
            process.member = before

    @rule(index=which)
    def drain(self, index: int) -> None:
        if process := self.pick(index):
            assert self.ops.drain(process.member) == self.model.drain(process.member)
            process.draining = True

    @rule(index=which)
    def leave(self, index: int) -> None:
        if process := self.pick(index):
            assert self.ops.leave(process.member) == self.model.leave(process.member)
            process.dead = True
            self.forget()

    # -- messages

    @rule(queues=st.lists(st.sampled_from(["q", "q", "r", "c"]), min_size=1, max_size=3))
    def put(self, queues: list[str]) -> None:
        """One publication, which may go to several queues as one and the same message."""
        self.messages += 1
        for queue in dict.fromkeys(queues):
            raw = f"m{self.messages}"
            self.ops.put(queue, raw)
            self.model.queues[queue].append(raw)
            self.published.add((queue, raw))

    @rule(index=which, order=st.permutations(["q", "r"]), answer_lost=st.sampled_from([False, False, False, True]))
    def take(self, index: int, order: list[str], *, answer_lost: bool) -> None:
        if process := self.pick(index):
            self.take_one(process, order, answer_lost=answer_lost)

    @rule(index=which, times=st.integers(1, 3))
    def take_more(self, index: int, times: int) -> None:
        """A pod with concurrency above 1."""
        if process := self.pick(index):
            for _ in range(times):
                self.take_one(process, ["q", "r"], answer_lost=False)

    def take_one(self, process: Process, order: list[str], *, answer_lost: bool, acks: list[int] | None = None) -> None:
        number = process.count + 1
        answer = self.ops.take(process.member, number, ["c"], order, acks or ())
        expected = self.model.take(process.member, number, order, acks)
        if isinstance(expected, str):
            nothing = {"lost": Lost(), "empty": Empty(False, False), "denied": Empty(True, False)}  # noqa: FBT003
            assert answer == nothing[expected]  # never stale: the process asks under numbers that it has not used
            return
        assert answer == Take(number, expected[0], expected[1], expected[2].encode(), expected[3].encode())
        if not answer_lost:
            process.count = number
            process.runs[number] = expected

    @rule(index=which, acks=st.integers(1, 3), late=st.booleans())
    def take_with_acks(self, index: int, acks: int, *, late: bool) -> None:
        """Acknowledgements that go with a TAKE; with one that was stuck on its way, too."""
        process = self.pick(index)
        if process is None:
            return
        numbers = list(process.runs)[:acks]
        held = self.model.members[process.member].held if process.member in self.model.members else {}
        for number in numbers:
            if entry := held.get(number):
                self.done.add(entry[2:])
            del process.runs[number]
            process.emptied.discard(number)
        if late and process.count:
            answer = self.ops.take(process.member, process.count, ["c"], ["q", "r"], numbers)
            expected = self.model.take(process.member, process.count, ["q", "r"], numbers)
            if isinstance(expected, str):
                assert answer == {"lost": Lost(), "stale": Stale()}[expected]
        else:
            self.take_one(process, ["q", "r"], answer_lost=False, acks=numbers)
        self.forget()

    @rule(index=which, number=st.integers(1, 6))
    def late_take(self, index: int, number: int) -> None:
        """A TAKE that was stuck on a connection which the process gave up long ago: nobody reads its answer."""
        process = self.pick(index)
        if process is None or number > process.count:
            return
        answer = self.ops.take(process.member, number, ["c"], ["q", "r"])
        expected = self.model.take(process.member, number, ["q", "r"])
        if isinstance(expected, str):
            assert answer == {"lost": Lost(), "stale": Stale()}[expected]
        else:
            assert isinstance(answer, Take)
            assert answer.seq == expected[0]

    @rule(index=which, ack_first=st.booleans())
    def late_join(self, index: int, *, ack_first: bool) -> None:
        """A JOIN that was stuck on its way while the process took more: it must not drop what it does not know."""
        process = self.pick(index)
        if process is None or process.member not in self.model.members:
            return
        running, entries, next_id = process.running(), process.entries(), process.count + 1
        if ack_first:
            self.ack(index=index, task=0, keep=False)
        self.take_one(process, ["q", "r"], answer_lost=False)
        if process.epoch != self.model.epoch or process.draining:
            return
        self.ops.join(process.member, epoch=process.epoch, next_id=next_id, running=running, emptied=process.emptied,
                      given_back=process.given_back)  # fmt: skip
        self.model.join(process.member, process.epoch, next_id, entries, process.given_back, draining=False)

    @rule(index=which, task=st.integers(0, 3), keep=st.booleans())
    def ack(self, index: int, task: int, *, keep: bool) -> None:
        process = self.pick(index)
        if process is None or not process.runs:
            return
        number = list(process.runs)[task % len(process.runs)]
        held = self.model.members[process.member].held if process.member in self.model.members else {}
        if entry := held.get(number):
            self.done.add(entry[2:])
        assert self.ops.ack(process.member, number, keep=keep) == self.model.ack(process.member, number, keep=keep)
        del process.runs[number]
        process.emptied.discard(number)
        self.forget()

    @rule(index=which, task=st.integers(0, 3))
    def empty(self, index: int, task: int) -> None:
        process = self.pick(index)
        if process is None or not process.runs:
            return
        number = list(process.runs)[task % len(process.runs)]
        entry = process.runs[number]
        effective = self.ops.empty(process.member, number)
        assert effective == self.model.empty(process.member, number)
        if effective:
            process.emptied.add(number)
            self.done.add(entry[2:])

    @rule(index=which, task=st.integers(0, 3), where=st.sampled_from(["head", "tail", "dead", "park"]),
          later_ms=st.sampled_from([0, 700, 5000]))  # fmt: skip
    def back(self, index: int, task: int, where: Any, later_ms: int) -> None:
        process = self.pick(index)
        if process is None or not process.runs:
            return
        number = list(process.runs)[task % len(process.runs)]
        if where == "park":
            parked = self.ops.park(process.member, number, self.lab.now_ms + later_ms)
            assert parked == self.model.park(process.member, number, self.lab.now_ms + later_ms)
            if parked == "due":
                return
        else:
            effective = self.ops.back(process.member, number, where, deliveries=1)
            assert effective == self.model.back(process.member, number, where)
        process.given_back.add(number)
        del process.runs[number]
        process.emptied.discard(number)
        self.forget()

    @precondition(lambda self: self.model.dead)
    @rule(index=which)
    def requeue_dead_letter(self, index: int) -> None:
        """A person sends one on its way again."""
        letters = list(DeadLetters(self.ops))
        number = index % len(letters)
        assert DeadLetters(self.ops).requeue([letters[number].id]) == [Outcome(letters[number].id)]
        self.model.requeue(number)

    # -- trouble with Redis itself

    @rule()
    def script_flush(self) -> None:
        self.client.script_flush()

    @precondition(lambda self: self.published)
    @rule(luck=st.integers(0, 3))
    def lose_all_data(self, luck: int) -> None:
        if luck:
            return
        self.client.flushall()
        self.model.flush()
        self.lab.advance(0)
        self.flushed = True
        self.forget()

    def places(self, message: tuple[str, str]) -> int:
        queue, raw = message
        return (
            self.model.queues[queue].count(raw)
            + sum(letter[:2] == message for letter in self.model.dead)
            + sum(entry[2:] == message for _, entry in self.model.parked)
            + sum(
                entry is not None and entry[2:] == message
                for member in self.model.members.values()
                for entry in member.held.values()
            )
        )

    def forget(self) -> None:
        """After a loss of data: what no place knows and no living process runs is Redis' loss, not ours."""
        if self.flushed:
            run = {
                entry[2:]
                for process in self.processes
                if not process.dead
                for number, entry in process.runs.items()
                if number not in process.emptied
            }
            self.published = {m for m in self.published if self.places(m) or m in self.done or m in run}

    # -- what must hold after each step

    @invariant()
    def redis_is_as_the_model(self) -> None:
        lab, model = self.lab, self.model
        assert {name: lab.queue(name) for name in model.queues} == model.queues
        for name, member in model.members.items():
            expected = {
                number: f"{e[0]} {e[1]} {len(e[2])} {e[2]}{e[3]}".encode() if e else b""
                for number, e in member.held.items()
            }
            assert lab.held(name) == expected
        pattern = lab.keys.held("*")
        holders = {key.decode().removeprefix(pattern[:-1]) for key in self.client.scan_iter(pattern, count=1000)}
        assert holders == {name for name, member in model.members.items() if member.held}
        letters = [(x[b"source"].decode(), x[b"raw"].decode(), int(x[b"deliveries"]))
                   for _, x in self.client.xrange(lab.keys.dead())]  # fmt: skip
        assert letters == model.dead
        counts = self.ops.counts()
        assert (counts.busy, counts.capacity) == (model.busy(), model.capacity())
        assert counts.parked == len(model.parked)
        assert counts.alive + counts.draining + counts.silent == len(model.members)
        guard = self.client.get(lab.keys.guard())
        assert (int(guard) if guard else None) == model.guard_ms
        counted = list(self.client.scan_iter(lab.keys.namespace() + "deliveries:*", count=1000))
        assert sorted(int(self.client.hget(key, "n")) for key in counted) == sorted(model.counted.values())

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        for message in self.published:
            places = self.places(message) + (message in self.done)
            if self.flushed:
                run = any(message == e[2:] for p in self.processes if not p.dead for e in p.runs.values())
                assert places or run, message
            else:
                assert places == 1, message

    @invariant()
    def no_waiter_that_may_not_wait(self) -> None:
        """Nobody waits for a bell who is not a member that could answer it."""
        waiting = {name.decode() for name in self.client.zrange(self.lab.keys.namespace() + "waiting", 0, -1)}
        assert waiting <= {name for name, member in self.model.members.items() if not member.draining}

    def teardown(self) -> None:
        """Nothing is stranded: all die, one comes, and it gets all that is left, in order."""
        for process in self.processes:
            process.dead = True
        last = Process("Z", self.boot("Z"))
        self.pass_time(TTL_MS + 1)
        assert self.join(last)
        for _ in range(8):
            self.pass_time(BEAT_MS)
            self.beat_one(last)
        assert set(self.model.members) == {last.member}
        left = [(queue, raw) for queue in ("c", "q", "r") for raw in self.model.queues[queue]]
        for number, (queue, raw) in enumerate(left, 1):
            take = self.ops.take(last.member, number, ["c"], ["q", "r"])
            assert isinstance(take, Take)
            assert (take.source.decode(), take.raw.decode()) == (queue, raw)
        self.redis_keeps_only_what_must_stay(last)

    def redis_keeps_only_what_must_stay(self, last: Process) -> None:
        """After the last member left, only what must outlive its writer has no time to live."""
        self.ops.leave(last.member)
        keys = self.lab.keys
        stay = {keys.epoch(), keys.dead(), keys.parked(), keys.namespace() + "seq", "lab:clock", "c", "q", "r"}
        for key in self.client.scan_iter("*", count=1000):
            assert key.decode() in stay or self.client.ttl(key) > 0, key


@pytest.mark.parametrize("ratio", [0.8, 0.5])
@pytest.mark.timeout(240)
def test_random_schedules(server: Any, ratio: float) -> None:
    machine = type("Schedule", (Schedule,), {"client": server, "ratio": ratio})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60, stateful_step_count=50, deadline=None, database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], print_blob=True,
        ),
    )  # fmt: skip
