"""One beat leads, an entry runs once for a due time: each promise as a scenario that a wrong script must not pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import redis

from tests.support.waiting import wait_until
from tests.throttle.lab import LabOperations
from throttle.keys import Keys
from throttle.schedule import Messages, Record, Schedule, look
from throttle.scripts import Operations, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.servers import StartServer

KEYS = Keys("lab")
A, B = "a#1", "b#1"
FAR_US = 4_000_000_000_000_000


class Beats:
    """Beats on one server, with scripts that may be written otherwise."""

    def __init__(self, client: redis.Redis, changes: Mapping[str, str] | None = None) -> None:
        """`changes`: Lua text -> what stands there instead."""
        self.client = client
        self.operations = LabOperations(client, KEYS, Rule(0.8, 6000, 3), changes or {})
        client.set("lab:clock", 1_000_000)

    def beat(self, member: str, lease_s: float = 30.0) -> Schedule:
        """A beat."""
        return Schedule(self.operations, member, lease_s)

    def leader(self, member: str = A, due_us: int = 1000, lease_s: float = 30.0) -> tuple[Schedule, str]:
        """A beat that leads with the entry `e`, and its term."""
        made = self.beat(member, lease_s)
        led = made.lead()
        assert led.standing == "begins"
        assert made.settle(led.term, {"e": Record(due_us, digest="d")})
        return made, led.term

    def end_lease(self) -> None:
        """Let the lease of whoever leads run out."""
        self.client.delete(KEYS.schedule_lease())

    def queued(self) -> list[bytes]:
        """What lies in the queue q."""
        return cast("list[bytes]", self.client.lrange("q", 0, -1))


def run(beat: Schedule, term: str, *, expected_us: int = 1000, due_us: int | None = 1000, next_us: int = 2000) -> str:
    """Run the entry `e`, with one message for the queue q."""
    messages = Messages([("q", f"m{due_us}")]) if due_us is not None else Messages()
    return beat.run(term, "e", expected_us=expected_us, due_us=due_us, next_us=next_us, messages=messages).outcome


def one_leads(beats: Beats) -> None:
    """Of two that ask, one leads; the other is told who, and for how long."""
    first, _ = beats.leader()
    second = beats.beat(B).lead()
    assert second.standing == "stands by"
    assert second.term.startswith(A)
    assert 0 < second.left_ms <= first.lease_ms


def a_run_is_once(beats: Beats) -> None:
    """The same run asked for again, as after a lost answer, is told from a new one by the record."""
    beat, term = beats.leader()
    assert run(beat, term) == "done"
    assert run(beat, term) == "otherwise"
    assert beats.queued() == [b"m1000"]
    assert run(beat, term, expected_us=2000, due_us=2000, next_us=3000) == "done"


def an_earlier_term_runs_nothing(beats: Beats) -> None:
    """Who lost the lease runs nothing, though the record still names what it expects."""
    beat, term = beats.leader()
    beats.end_lease()
    assert beats.beat(B).lead().standing == "begins"
    assert run(beat, term) == "not leading"
    assert beats.queued() == []


def nobody_leads_without_a_lease(beats: Beats) -> None:
    """A lease that ran out is over, also while nobody else leads."""
    beat, term = beats.leader()
    beats.end_lease()
    assert run(beat, term) == "not leading"
    assert run(beat, "") == "not leading"


def a_lease_that_ended_begins_a_new_term(beats: Beats) -> None:
    """The same member that leads again does so in a new term: what is still on its way from before is refused."""
    beat, term = beats.leader()
    beats.end_lease()
    again = beat.lead(term)
    assert again.standing == "begins"
    assert again.term != term
    assert run(beat, term) == "not leading"
    assert run(beat, again.term) == "done"


def the_servers_clock_counts(beats: Beats) -> None:
    """Nothing runs before its time, whatever the clock of the pod says."""
    beat, term = beats.leader(due_us=FAR_US)
    assert run(beat, term, expected_us=FAR_US, due_us=FAR_US, next_us=FAR_US + 1) == "early"
    assert beats.queued() == []


def an_earlier_term_settles_nothing(beats: Beats) -> None:
    """Who lost the lease does not put its own entries in the place of the new leader's."""
    beat, term = beats.leader()
    beats.end_lease()
    beats.leader(B, due_us=5000)
    assert not beat.settle(term, {"old": Record(1)})
    assert set(look(beats.operations).records) == {"e"}


def what_is_declared_no_more_vanishes(beats: Beats) -> None:
    """The records are those of the code that leads."""
    beat, term = beats.leader()
    assert beat.settle(term, {"other": Record(7, digest="x")})
    assert look(beats.operations).records == {"other": Record(7, digest="x")}


def a_refused_queue_leaves_the_entry_due(beats: Beats) -> None:
    """A key that is no list is found before anything is published: not one queue of two gets the message."""
    beat, term = beats.leader()
    beats.client.set("no list", 1)
    messages = Messages([("q", "m"), ("no list", "m")])
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        beat.run(term, "e", expected_us=1000, due_us=1000, next_us=2000, messages=messages)
    assert beats.queued() == []
    assert look(beats.operations).records["e"].due_us == 1000


def moving_on_is_no_run(beats: Beats) -> None:
    """A run that is left out publishes nothing and is not counted."""
    beat, term = beats.leader()
    assert run(beat, term, due_us=None, next_us=9000) == "done"
    assert beats.queued() == []
    assert look(beats.operations).records["e"] == Record(9000, digest="d")


def a_run_renews_the_lease(beats: Beats) -> None:
    """A leader that is busy running does not lose the lead for it."""
    beat, term = beats.leader()
    beats.client.pexpire(KEYS.schedule_lease(), 5000)
    assert run(beat, term) == "done"
    assert beats.client.pttl(KEYS.schedule_lease()) > 5000


def an_answer_that_was_lost_is_the_same_term(beats: Beats) -> None:
    """Who began to lead and does not know it is told when it asks again."""
    beat = beats.beat(A)
    began, again = beat.lead(), beat.lead()
    assert (began.standing, again.standing) == ("begins", "begins")
    assert began.term == again.term


def who_remembers_goes_first(beats: Beats) -> None:
    """Where the records are gone, one that has none to settle lets the other begin."""
    beat, _ = beats.leader()
    beats.client.flushall()
    beats.client.set("lab:clock", 1_000_000)
    assert beats.beat(B).lead(yields=True).standing == "yields"
    assert beat.lead().standing == "begins"
    assert beats.beat(B).lead(yields=True).standing == "stands by"


def resigning_makes_room(beats: Beats) -> None:
    """The lease of who ends in order is over at once; who does not lead ends nobody's."""
    beat, term = beats.leader()
    assert not beats.beat(B).resign("")
    assert beats.beat(B).lead().standing == "stands by"
    assert beat.resign(term)
    assert not beat.resign(term)
    assert beats.beat(B).lead().standing == "begins"


WRONG: list[tuple[Callable[[Beats], None], str, str]] = [
    (one_leads, "if holder and not mine then return {0, holder, digits(now_us), call('PTTL', LEASE)} end", ""),
    (a_run_is_once, "if expected ~= ARGV[9] then return {-2, digits(now_us), record} end", ""),
    (a_run_is_once, "record = table.concat({ARGV[11], last", "record = table.concat({expected, last"),
    (an_earlier_term_runs_nothing, "call('GET', LEASE) == term", "call('EXISTS', LEASE) == 1"),
    (nobody_leads_without_a_lease, "call('GET', LEASE) == term", "call('GET', LEASE) ~= 'another'"),
    (a_lease_that_ended_begins_a_new_term, "m .. ' ' .. digits(now_us)", "m .. ' 1'"),
    (the_servers_clock_counts, "if now_us < tonumber(due) then", "if false then"),
    (an_earlier_term_settles_nothing, "if not leads(ARGV[6]) then return 0 end", ""),
    (what_is_declared_no_more_vanishes, "call('DEL', ENTRIES)", ""),
    (a_refused_queue_leaves_the_entry_due, "if kind ~= 'none' and kind ~= 'list' then", "if false then"),
    (moving_on_is_no_run, "if due ~= '' then", "due = due == '' and '0' or due if true then"),
    (a_run_renews_the_lease, "call('PEXPIRE', LEASE, ARGV[7])", ""),
    (an_answer_that_was_lost_is_the_same_term, "local term = mine and holder or", "local term ="),
    (who_remembers_goes_first, "ARGV[8] == '1' and call('EXISTS', ENTRIES) == 0", "false"),
    (resigning_makes_room, "call('DEL', LEASE)", ""),
    (resigning_makes_room, "if not leads(ARGV[6]) then return 0 end", ""),
]


@pytest.mark.parametrize("scenario", dict.fromkeys(scenario for scenario, _, _ in WRONG), ids=lambda s: s.__name__)
def test_promise(server: redis.Redis, scenario: Callable[[Beats], None]) -> None:
    scenario(Beats(server))


@pytest.mark.parametrize("number", range(len(WRONG)), ids=lambda n: f"{WRONG[n][0].__name__}-{n}")
def test_a_script_that_is_written_otherwise_breaks_it(valkey: redis.Redis, number: int) -> None:
    scenario, right, wrong = WRONG[number]
    beats = Beats(valkey, {right: wrong})
    with pytest.raises((AssertionError, redis.ResponseError)):
        scenario(beats)
    assert beats.operations.used == {right}


def test_a_lease_ends_by_the_servers_clock(server: redis.Redis) -> None:
    beats = Beats(server)
    beats.leader(lease_s=0.2)
    standby = beats.beat(B)
    assert standby.lead().standing == "stands by"
    assert wait_until(lambda: standby.lead().standing == "begins")


def test_a_run_reaches_queues_and_channels_in_one_step(server: redis.Redis) -> None:
    beats = Beats(server)
    beat, term = beats.leader()
    with server.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe("c")
        listener.get_message(timeout=5)
        messages = Messages([("q", "one"), ("r", "two")], [("c", "three")])
        ran = beat.run(term, "e", expected_us=1000, due_us=1500, next_us=2000, messages=messages)
        heard: dict[str, Any] = cast("Any", listener).get_message(timeout=5)
    assert heard["data"] == b"three"
    assert (beats.queued(), server.lrange("r", 0, -1)) == ([b"one"], [b"two"])
    assert ran.record == look(beats.operations).records["e"]
    assert ran.record is not None
    assert (ran.record.due_us, ran.record.last_us, ran.record.runs) == (2000, 1500, 1)
    assert abs(ran.record.ran_us - ran.server_us) < 1_000_000


def test_a_run_rings_one_who_waits(server: redis.Redis) -> None:
    operations = Operations(server, KEYS, Rule(0.8, 6000, 3))
    beat, term = Beats(server).leader()
    real = Schedule(operations, A, 30)
    operations.join("pod#1")
    operations.take("pod#1", 1, (), ("q",))
    assert run(real, term) == "done"
    assert server.llen(KEYS.bell("pod#1")) == 1
    assert beat.member == real.member


def test_a_full_redis_refuses_a_run_as_it_refuses_a_message(start_server: StartServer) -> None:
    with start_server().client() as client:
        beats = Beats(client)
        beat, term = beats.leader()
        client.config_set("maxmemory", 1)
        with pytest.raises(redis.OutOfMemoryError):
            run(beat, term)
        assert beat.lead(term).standing == "goes on"
        client.config_set("maxmemory", 0)
        assert run(beat, term) == "done"
        assert beats.queued() == [b"m1000"]


@pytest.mark.parametrize("text", ["", "1 2 3", "a 2 3 4 d", "1 2 3 4"])
def test_what_is_no_record_is_none(text: str) -> None:
    assert Record.read(text) is None


def test_a_record_is_read_as_it_was_written() -> None:
    record = Record(1, 2, 3, 4, "<crontab: 0 3 * * * (m/h/dM/MY/d)> Europe/Berlin")
    assert Record.read(str(record)) == record


def test_a_look_tells_who_leads_who_stands_by_and_what_is_next(server: redis.Redis) -> None:
    beats = Beats(server)
    assert look(beats.operations)[1:] == ("", 0, (), {})
    _, term = beats.leader()
    beats.beat(B).lead()
    seen = look(beats.operations)
    assert (seen.leader, seen.standbys, seen.records) == (A, (B,), {"e": Record(1000, digest="d")})
    assert f"{A} {seen.since_us}" == term
