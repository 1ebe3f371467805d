"""The parts of the soak that decide: the schedule, the checker, the look for leaks, and what is called growth."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.chaos.checker import check, reason, runs_of
from benchmarks.chaos.hands import Harm
from benchmarks.chaos.leaks import leaks
from benchmarks.chaos.schedule import DECK, FATAL, LARGEST, SPARED_SIZE, schedule
from benchmarks.growth import Growth, Look, rise
from throttle.keys import Keys
from throttle.scripts import Operations, Rule

if TYPE_CHECKING:
    from benchmarks.chaos.checker import Findings
    from tests.support.servers import Client

TTL_S = 4.0

# ---------------------------------------------------------------- the schedule


def test_a_seed_is_a_schedule() -> None:
    assert schedule(1, 300, TTL_S) == schedule(1, 300, TTL_S)
    assert schedule(1, 300, TTL_S) != schedule(2, 300, TTL_S)


def test_a_longer_soak_begins_as_the_shorter_one() -> None:
    short = schedule(3, 90, TTL_S)
    assert schedule(3, 600, TTL_S)[: len(short)] == short


@pytest.mark.parametrize("seed", range(5))
def test_every_kind_comes_and_every_size(seed: int) -> None:
    deeds = schedule(seed, 300, TTL_S)
    assert {deed.kind for deed in deeds} == set(DECK)
    assert {deed.size for deed in deeds if deed.kind == "scale"} >= set(range(2, LARGEST + 1))
    assert [deed.at_s for deed in deeds] == sorted(deed.at_s for deed in deeds)


@pytest.mark.parametrize("seed", range(5))
def test_victims_exist_and_some_live_to_the_end(seed: int) -> None:
    size, ended = 1, Counter[int]()
    for deed in schedule(seed, 900, TTL_S):
        assert all(1 <= pod <= size for pod in deed.pods)
        size = deed.size or size
        if deed.kind in FATAL and deed.at_s > 300:
            ended.update(deed.pods)
    assert not set(ended) & set(range(1, SPARED_SIZE + 1))
    assert ended


# ---------------------------------------------------------------- the checker


def run(task: str, pod: str, from_s: float, to_s: float | None = None, take: str = "1") -> list[dict[str, Any]]:
    """The records of one run."""
    told = {"task": task, "pod": pod, "pid": 1, "take": take, "attempt": 0}
    start = {**told, "what": "start", "at": from_s}
    return [start] if to_s is None else [start, {**told, "what": "end", "at": to_s, "state": "SUCCESS"}]


def found(
    *records: list[dict[str, Any]],
    accepted: tuple[str, ...] = ("a",),
    harms: tuple[Harm, ...] = (),
    dead: tuple[bytes, ...] = (),
    **more: Any,
) -> Findings:
    """What the checker finds."""
    nothing = {"poisons": (), "garbage": (), "retried": (), "remaining": ()}
    told = [record for its in records for record in its]
    return check(accepted=accepted, records=told, harms=harms, dead=dead, ttl_s=TTL_S, **{**nothing, **more})


def test_what_was_accepted_and_never_ended_is_lost() -> None:
    assert found().lost == ["a"]
    assert found(run("a", "one", 1)).lost == ["a"]
    assert found(run("a", "one", 1, 2)).lost == []
    assert found(run("a", "one", 1), remaining={"a"}).lost == []
    assert found(dead=(b'{"headers": {"id": "a"}}',)).lost == []


TWICE = (run("a", "one", 1, 2), run("a", "two", 3, 4, "7"))


def test_two_ends_without_a_harm_are_unexplained() -> None:
    findings = found(*TWICE)
    assert (findings.unexplained, findings.explained) == (["a"], {})


@pytest.mark.parametrize(
    ("harm", "explains"),
    [
        (Harm("one", "kill", 1.5, 1.5), True),
        (Harm("one", "kill-child", 2.4, 2.4), True),
        (Harm("two", "kill", 3.5, 3.5), True),
        (Harm("three", "kill", 1.5, 1.5), False),
        (Harm("one", "kill", 8.0, 8.0), False),
        (Harm("one", "kill", 0.1, 0.1), False),
        (Harm("one", "freeze", 0.5, 3.5), True),
        (Harm("one", "freeze", 1.5, 2.0), False),
        (Harm("one", "freeze", 1.5, 3.6), False),
        (Harm("one", "swallow", 1.5, 3.6), True),
        (Harm("one", "swallow", 1.5, 2.4), False),
        (Harm("one", "untold", 2.1, 2.9), True),
        (Harm("one", "reset", 1.5, 1.5), False),
        (Harm("one", "slow", 0.0, 9.0), False),
        (Harm("", "redis-restart", 1.5, 8.0), False),
    ],
    ids=[
        "killed", "child", "second", "another-pod", "later", "before", "frozen", "short", "less-than-silent",
        "swallowed", "hardly", "untold", "reset", "slow", "redis",
    ],
)  # fmt: skip
def test_only_what_takes_an_acknowledgement_away_explains_it(harm: Harm, *, explains: bool) -> None:
    findings = found(*TWICE, harms=(harm,))
    assert bool(findings.explained) is explains
    assert bool(findings.unexplained) is not explains


def test_a_frozen_pod_that_runs_on_waking_what_others_did_meanwhile_is_explained() -> None:
    records = [*run("a", "two", 3, 4), *run("a", "one", 5.1, 5.2)]
    assert reason(runs_of(records)["a"], [Harm("one", "freeze", 1.0, 5.0)], ttl_s=TTL_S, retried=False) == "freeze"


def test_a_task_that_asks_to_be_run_again_may_be_published_twice_when_redis_does_not_answer() -> None:
    redis_away = (Harm("", "redis-restart", 1.5, 1.6),)
    assert found(*TWICE, harms=redis_away, retried={"a"}).unexplained == []
    assert found(*TWICE, harms=redis_away).unexplained == ["a"]


def test_poison_must_become_one_dead_letter() -> None:
    letter = b'{"headers": {"id": "a"}}'
    assert found(poisons={"a"}, dead=(letter,)).spared == []
    assert found(poisons={"a"}, dead=(letter, letter)).spared == ["a"]
    assert found(run("a", "one", 1, 2), poisons={"a"}).spared == ["a"]
    assert found(accepted=(), garbage=(b"x",), dead=(b"x",)).spared == []
    assert found(accepted=(), garbage=(b"x",)).spared == ["x"]


def test_a_dead_letter_that_was_no_poison_is_named() -> None:
    assert found(dead=(b'{"headers": {"id": "a"}}',)).condemned == ["a"]


# ---------------------------------------------------------------- leaks


@pytest.fixture
def fleet(server: Client) -> Operations:
    """The fleet of the benchmarks, with one member."""
    operations = Operations(server, Keys("benchmark"), Rule(0.8, 4000, 5, 100))
    operations.join("pod#1")
    return operations


def test_an_idle_fleet_leaves_no_leak_and_neither_does_one_that_left(server: Client, fleet: Operations) -> None:
    fleet.put("q", "m")
    fleet.take("pod#1", 1, normal=("q",))
    fleet.ack("pod#1", 1)
    fleet.take("pod#1", 2, normal=("q",))
    assert leaks(server, 1) == []
    fleet.leave("pod#1")
    assert leaks(server, 0) == []


def test_each_kind_of_leak_is_found(server: Client, fleet: Operations) -> None:
    keys = fleet.keys
    server.hset(keys.held("pod#0"), "1", "")
    server.hset(keys.namespace() + "beats", "pod#0", "1 1")
    server.hset(keys.names(), "old", "old#1")
    server.lpush(keys.bell("pod#0"), "1")
    server.set(keys.namespace() + "deliveries:abc", 1, px=1000)
    assert sorted(leaks(server, 2)) == [
        "beats still names pod#0",
        "bell:pod#0 expires in -1 s, not within 5",
        "deliveries:abc is there",
        "held:pod#0 is there",
        "names still names old#1",
        "{headroom:benchmark}:pods:alive has 1 members, not 2",
    ]


# ---------------------------------------------------------------- growth


def grown(*sizes: float) -> float:
    """What a process with these sizes, one a second, has grown by."""
    growth = Growth()
    growth.looks["pod", 1] = [Look(float(at_s), size, 10) for at_s, size in enumerate(sizes)]
    return growth.grown(5)[-1].rss_mb


def test_only_the_second_half_of_a_life_counts() -> None:
    assert grown(*range(10), *[10] * 20) == 0
    assert grown(*[10] * 10, *range(10, 20)) == pytest.approx(9)


def test_a_short_life_says_nothing() -> None:
    growth = Growth()
    growth.looks["pod", 1] = [Look(float(at_s), 1.0, 1) for at_s in range(6)]
    assert growth.grown(5) == []


def test_a_rise_is_that_of_a_straight_line() -> None:
    assert rise([0, 1, 2, 3], [5, 7, 9, 11]) == pytest.approx(6)
    assert rise([0, 1, 2, 3], [5, 5, 5, 5]) == 0
