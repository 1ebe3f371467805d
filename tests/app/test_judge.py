"""The judge finds what is wrong, in journals and records written by hand, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from app.local.judge import Published, judge, longest_idle_s, runs_from
from app.local.replay import Entry, parse, replay

TTL = 6000


def entry(at_ms: int, op: str, member: str, **fields: object) -> Entry:
    return Entry(op, member, at_ms, {name: str(value) for name, value in fields.items()})


def fleet(count: int, at_ms: int = 0) -> list[Entry]:
    """So many pods that joined: a#1, b#1, ..."""
    return [entry(at_ms, "join", f"{chr(97 + n)}#1", state="living", old="") for n in range(count)]


def take(at_ms: int, member: str, number: int, **fields: object) -> Entry:
    return entry(
        at_ms,
        "take",
        member,
        **{"id": number, "seq": number, "lane": "normal", "key": "q", "deliveries": 0, **fields},
    )


def reasons(entries: list[Entry], ratio: float = 0.8) -> list[str]:
    return [violation.reason for violation in replay(entries, ratio=ratio, ttl_ms=TTL).violations]


def contradictions(entries: list[Entry]) -> list[str]:
    return [found.reason for found in replay(entries, ratio=0.8, ttl_ms=TTL).contradictions]


FOUR_BUSY = [*fleet(5), *[take(10, f"{name}#1", 1) for name in "abcd"]]


def test_up_to_capacity_is_right() -> None:
    assert reasons(FOUR_BUSY) == []


def test_the_fifth_of_five_is_a_violation() -> None:
    assert reasons([*FOUR_BUSY, take(20, "e#1", 1)]) == ["4 other pods were busy, capacity 4 of 5 living"]


def test_the_fifth_may_be_critical() -> None:
    assert reasons([*FOUR_BUSY, take(20, "e#1", 1, lane="critical")]) == []


def test_a_busy_pod_may_take_more_at_capacity() -> None:
    assert reasons([*FOUR_BUSY, take(20, "a#1", 2)]) == []


def test_a_busy_pod_may_not_take_more_above_capacity() -> None:
    above = [*FOUR_BUSY, take(20, "e#1", 1, lane="critical")]
    assert reasons([*above, take(30, "a#1", 2)]) == ["4 other pods were busy, capacity 4 of 5 living"]


def test_a_critical_task_counts_as_busy() -> None:
    three = [*fleet(5), *[take(10, f"{name}#1", 1) for name in "abc"]]
    full = [*three, take(11, "d#1", 1, lane="critical")]
    assert reasons([*full, take(20, "e#1", 1)]) != []


def test_an_acknowledgement_frees_the_slot_and_an_early_one_does_not() -> None:
    assert reasons([*FOUR_BUSY, entry(15, "ack", "a#1", id=1), take(20, "e#1", 1)]) == []
    assert reasons([*FOUR_BUSY, entry(15, "empty", "a#1", id=1), take(20, "e#1", 1)]) != []


def test_a_second_held_message_keeps_the_slot() -> None:
    two = [*FOUR_BUSY, take(12, "a#1", 2)]
    assert reasons([*two, entry(15, "ack", "a#1", id=1), take(20, "e#1", 1)]) != []
    assert reasons([*two, entry(15, "ack", "a#1", id=1), entry(16, "ack", "a#1", id=2), take(20, "e#1", 1)]) == []


@pytest.mark.parametrize("where", ["head", "tail", "park", "dead"])
def test_a_message_that_went_back_frees_the_slot(where: str) -> None:
    back = entry(15, "back", "a#1", id=1, where=where)
    found = replay([*FOUR_BUSY, back, take(20, "e#1", 1)], ratio=0.8, ttl_ms=TTL)
    assert found.violations == []
    assert found.put_back == (1 if where in {"head", "tail"} else 0)


def test_a_pod_that_left_or_was_returned_is_not_busy() -> None:
    gone = [entry(15, "return", "a#1", id=1, key="q"), entry(15, "gone", "a#1", why="silent")]
    # Four live, three of them are allowed to be busy, and three are.
    assert reasons([*FOUR_BUSY, *gone, take(20, "e#1", 1)]) == ["3 other pods were busy, capacity 3 of 4 living"]
    assert replay([*FOUR_BUSY, *gone], ratio=0.8, ttl_ms=TTL).returned == 1


def test_a_silent_pod_neither_lives_nor_is_busy() -> None:
    beats = [entry(5000, "beat", f"{name}#1") for name in "bcde"]
    silent = [*FOUR_BUSY, *beats, take(TTL + 1, "e#1", 1)]
    assert reasons(silent) == ["3 other pods were busy, capacity 3 of 4 living"]
    freed = [*FOUR_BUSY, *beats, entry(5500, "ack", "b#1", id=1), take(TTL + 1, "e#1", 1)]
    assert reasons(freed) == []


def test_a_silent_pod_may_not_take_until_it_beats() -> None:
    assert reasons([*fleet(1), take(TTL, "a#1", 1)]) == ["taken by a member that was not living"]
    assert reasons([*fleet(1), take(TTL - 1, "a#1", 1)]) == []
    assert reasons([*fleet(1), entry(TTL, "beat", "a#1"), take(TTL, "a#1", 1)]) == []


def test_a_take_is_no_beat() -> None:
    assert reasons([*fleet(1), take(5000, "a#1", 1), take(7000, "a#1", 2)]) != []


@pytest.mark.parametrize("lane", ["normal", "critical"])
def test_strangers_draining_and_gone_pods_may_not_take(lane: str) -> None:
    drained = entry(5, "drain", "a#1")
    gone = entry(5, "gone", "a#1", why="leave")
    for before in ([], [*fleet(2), drained], [*fleet(2), gone]):
        assert reasons([*before, take(10, "a#1", 1, lane=lane)]) == ["taken by a member that was not living"]


def test_a_draining_pod_counts_neither_in_n_nor_in_busy() -> None:
    # Five pods, four busy, one of the busy ones drains: four live, three are busy, three are allowed.
    assert reasons([*FOUR_BUSY, entry(12, "drain", "a#1"), take(20, "e#1", 1)]) != []
    two_free = [*FOUR_BUSY, entry(12, "drain", "a#1"), entry(13, "ack", "b#1", id=1)]
    assert reasons([*two_free, take(20, "e#1", 1)]) == []


def test_a_beat_of_a_stranger_makes_no_member() -> None:
    assert reasons([entry(0, "beat", "a#1"), take(1, "a#1", 1)]) == ["taken by a member that was not living"]


def test_a_superseded_incarnation_may_not_take() -> None:
    again = [entry(5, "gone", "a#1", why="superseded"), entry(5, "join", "a#2", state="living", old="a#1")]
    assert reasons([*fleet(2), *again, take(6, "a#2", 1)]) == []
    assert reasons([*fleet(2), *again, take(6, "a#1", 1)]) == ["taken by a member that was not living"]


@pytest.mark.parametrize(
    ("living", "ratio", "capacity"),
    [(1, 0.8, 1), (2, 0.8, 1), (5, 0.8, 4), (10, 0.7, 7), (10, 0.1, 1), (100, 0.29, 29), (5, 1, 5)],
)
def test_capacity_is_exact(living: int, ratio: float, capacity: int) -> None:
    """0.29 * 100 is 28.999... in floating point; the judge counts in fractions."""
    names = [f"p{number}#1" for number in range(living)]
    joined = [entry(0, "join", name, state="living", old="") for name in names]
    right = [take(1, name, 1) for name in names[:capacity]]
    assert reasons([*joined, *right], ratio) == []
    if capacity < living:
        assert len(reasons([*joined, *right, take(2, names[capacity], 1)], ratio)) == 1


def test_effects_that_must_have_none_are_found() -> None:
    late = [*fleet(2), take(1, "a#1", 1), entry(2, "gone", "a#1", why="silent"), entry(3, "ack", "a#1", id=1)]
    assert contradictions(late) == ["ack of a message that it did not hold was accepted"]
    assert contradictions([*fleet(2), take(1, "a#1", 1), take(2, "a#1", 1)]) == ["taken twice under one number"]
    assert contradictions([*fleet(2), take(1, "a#1", 1, capacity=2)]) == [
        "the script saw a capacity of 2 where 2 pods lived"
    ]
    assert contradictions([*FOUR_BUSY, entry(9, "ack", "a#1", id=1)]) == []


def test_entries_are_read_from_a_stream_decoded_or_not() -> None:
    raw = [(b"1-0", {b"op": b"take", b"member": b"a#1", b"at": b"7", b"id": b"3"})]
    assert parse(raw) == [Entry("take", "a#1", 7, {"id": "3"})]
    assert parse([("1-0", {"op": "beat", "member": "a#1", "at": "7"})]) == [Entry("beat", "a#1", 7, {})]


def record(what: str, task: str, pod: str = "a", at: float = 1.0, **more: object) -> dict[str, Any]:
    state = "SUCCESS" if what == "end" else None
    return {"what": what, "task": task, "pod": pod, "name": "t", "queue": "q", "at": at, "state": state, **more}


def verdict(published: list[Published], records: list[dict[str, Any]], **more: Any) -> Any:
    settings: dict[str, Any] = {"journal": [], "ratio": 0.8, "ttl_ms": TTL, **more}
    return judge(published=published, records=records, **settings)


def test_lost_doubled_and_done() -> None:
    published = [Published(task, "q", 0) for task in ("once", "twice", "never", "died", "waits")]
    records = [
        record("start", "once"),
        record("end", "once"),
        *[record(what, "twice", pod) for pod in "ab" for what in ("start", "end")],
        record("start", "died"),
        record("start", "beat's"),
        record("end", "beat's"),
    ]
    found = verdict(published, records, remaining={"waits"})
    assert (found.published, found.done) == (5, 2)
    assert found.lost == ["never", "died"]
    assert found.doubled == ["twice"]
    assert found.broken == ["2 tasks lost"]


def test_a_task_that_died_and_was_run_again_is_done_once() -> None:
    records = [
        record("start", "x", "a", 1),
        record("start", "x", "b", 2),
        record("end", "x", "b", 3),
    ]
    found = verdict([Published("x", "q", 0)], records)
    assert (found.done, found.lost, found.doubled, found.broken) == (1, [], [], [])
    first, second = runs_from(records)
    assert (first.completed, second.completed) == (False, True)


def test_a_failed_task_is_done_and_a_retried_one_is_not() -> None:
    published = [Published("bad", "q", 0), Published("again", "q", 0)]
    records = [
        record("start", "bad"),
        record("end", "bad", state="FAILURE"),
        record("start", "again"),
        record("end", "again", state="RETRY"),
    ]
    assert verdict(published, records).lost == ["again"]


def test_critical_latency_is_from_the_sending_to_the_first_start() -> None:
    published = [Published("n", "q", 1), Published("c", "critical", 10.0), Published("d", "critical", 11.0)]
    records = [record("start", "c", at=10.0125), record("start", "c", "b", at=20), record("start", "n", at=2)]
    assert verdict(published, records).critical_ms == [12.5]


def order(takes: list[Entry], starts: list[tuple[str, str, int, float]]) -> list[str]:
    published = [Published(task, "q", 0) for task in ("one", "two", "three")]
    records = [record("start", task, pod, at, take=number) for task, pod, number, at in starts]
    found = verdict(published, records, journal=[*fleet(3), *takes])
    assert found.order_checked == sum(entry.number("deliveries") == 0 for entry in takes if entry.op == "take")
    return list(found.out_of_order)


def test_order_is_of_takes_per_list() -> None:
    starts = [("one", "a", 1, 1.0), ("two", "b", 1, 1.0), ("three", "a", 2, 1.0)]
    right = [take(1, "a#1", 1), take(2, "b#1", 1), take(3, "a#1", 2)]
    assert order(right, starts) == []
    assert order([take(1, "b#1", 1), take(2, "a#1", 1), take(3, "a#1", 2)], starts) == ["one"]
    assert order([take(1, "b#1", 1, key="other"), take(2, "a#1", 1), take(3, "a#1", 2)], starts) == []
    assert order([take(1, "b#1", 1), take(2, "a#1", 1, deliveries=1), take(3, "a#1", 2)], starts) == []


def test_the_numbers_of_a_pod_that_began_anew_are_told_apart_by_time() -> None:
    starts = [("one", "a", 1, 1.0), ("two", "a", 1, 5.0), ("three", "b", 1, 6.0)]
    again = [
        entry(4000, "gone", "a#1", why="superseded"),
        entry(4000, "join", "a#2", state="living", old="a#1"),
    ]
    takes = [take(900, "a#1", 1), *again, take(4900, "a#2", 1), take(5000, "b#1", 1)]
    assert order(takes, starts) == []


def test_idle_is_the_longest_time_in_which_work_waited_and_nothing_ran() -> None:
    records = [
        record("start", "x", "a", at=10.5),
        record("start", "y", "b", at=11),
        record("end", "y", "b", at=12),
        record("end", "x", "a", at=14),
        record("start", "z", "b", at=14.75),
    ]
    runs = runs_from(records)
    assert longest_idle_s([Published(task, "q", 10) for task in "xyz"], runs) == 0.75
    assert longest_idle_s([Published("x", "q", 9), Published("z", "q", 9)], runs) == 1.5
    assert longest_idle_s([Published("z", "q", 14.5)], runs) == 0.25
    assert longest_idle_s([], runs) == 0


def test_the_wait_for_a_dead_pods_message_is_not_idleness() -> None:
    runs = runs_from([record("start", "x", "a", at=10.25), record("start", "x", "b", at=17)])
    assert longest_idle_s([Published("x", "q", 10)], runs) == 0.25


def test_broken_promises_are_said_in_words() -> None:
    journal = [
        *fleet(2),
        take(1, "a#1", 1),
        take(2, "b#1", 1),
        entry(3, "back", "b#1", id=1, where="head"),
        entry(4, "ack", "b#1", id=1),
    ]
    assert verdict([], [], journal=journal).broken == [
        "1 admissions against the rule",
        "1 operations that must have had no effect",
        "1 messages put back",
    ]
