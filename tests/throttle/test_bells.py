"""Who is rung: one waiter per message or slot, one that would be admitted, and nobody for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.throttle.lab import BEAT_MS, Lab

PODS = [f"p{n}#1" for n in range(5)]


@pytest.fixture
def lab(server: Any) -> Lab:
    """Five pods at capacity 4, all waiting, p0 first and p4 last."""
    lab = Lab(server)
    lab.join(*PODS)
    for pod in PODS:
        lab.advance(1)
        assert lab.take(pod) == "empty"
    return lab


def test_a_message_rings_the_newest_waiter_and_no_other(lab: Lab) -> None:
    lab.put("q", "m1")
    assert lab.rung(*PODS) == ["p4#1"]
    lab.put("q", "m2")
    assert lab.rung(*PODS) == ["p3#1", "p4#1"]


def test_an_answered_bell_is_gone_and_its_pod_waits_no_more(lab: Lab) -> None:
    lab.put("q", "m1")
    assert lab.take("p4#1") == "m1"
    assert lab.rung(*PODS) == []
    lab.put("q", "m2")
    assert lab.rung(*PODS) == ["p3#1"]


def test_a_bell_without_use_is_passed_on(lab: Lab) -> None:
    """The rung pod finds nothing it may take: another one that may is rung instead."""
    lab.put("r", "m1")
    lab.client.lpush("q", "foreign")
    assert lab.take("p4#1", normal=("x",)) == "empty"
    assert len(lab.rung(*PODS)) == 1


def test_normal_work_rings_nobody_when_the_fleet_is_full(lab: Lab) -> None:
    lab.put("q", *(f"m{n}" for n in range(4)))
    assert [lab.take(pod) for pod in PODS[1:]] == ["m0", "m1", "m2", "m3"]
    assert lab.take("p0#1") == "denied"
    lab.put("q", "m4")
    assert lab.rung(*PODS) == []
    lab.put("c", "urgent")
    assert lab.rung(*PODS) == ["p0#1"]
    assert lab.take("p0#1") == "urgent"


def test_a_freed_slot_rings_a_denied_waiter(lab: Lab) -> None:
    lab.put("q", *(f"m{n}" for n in range(6)))
    assert [lab.take(pod) for pod in PODS[1:]] == ["m0", "m1", "m2", "m3"]
    assert lab.take("p0#1") == "denied"
    lab.ops.ack("p1#1", 1)
    assert lab.rung(*PODS) == ["p0#1"]
    assert lab.take("p0#1") == "m4"


def test_a_kept_slot_rings_nobody(lab: Lab) -> None:
    lab.put("q", *(f"m{n}" for n in range(6)))
    assert [lab.take(pod) for pod in PODS[1:]] == ["m0", "m1", "m2", "m3"]
    assert lab.take("p0#1") == "denied"
    lab.ops.ack("p1#1", 1, keep=True)
    assert lab.rung(*PODS) == []
    assert lab.take("p1#1") == "m4"


def test_room_in_a_busy_pod_is_rung_when_no_idle_one_may_start(lab: Lab) -> None:
    """At capacity a busy pod with room is admitted, an idle one is not: the bell goes to the busy one."""
    lab.put("q", *(f"m{n}" for n in range(4)))
    assert [lab.take(pod) for pod in PODS[1:]] == ["m0", "m1", "m2", "m3"]
    assert lab.take("p1#1") == "empty"
    assert lab.take("p0#1") == "denied"
    lab.put("q", "m4")
    assert lab.rung(*PODS) == ["p1#1"]
    assert lab.take("p1#1") == "m4"


def test_idle_pods_are_rung_before_busy_ones(lab: Lab) -> None:
    lab.put("q", "m1")
    assert lab.take("p4#1") == "m1"
    lab.advance(1)
    assert lab.take("p4#1") == "empty"  # busy, with room, and now the newest waiter
    for queue in ("q", "c"):
        lab.put(queue, "next")
    assert lab.rung(*PODS) == ["p2#1", "p3#1"]


def test_a_drained_or_dead_pod_is_not_rung(lab: Lab) -> None:
    lab.ops.drain("p4#1")
    lab.ops.leave("p3#1")
    lab.client.delete(lab.keys.bell("p4#1"))  # its own token, that ends its wait
    lab.put("q", "m1")
    assert lab.rung(*PODS) == ["p2#1"]


def test_a_stale_waiter_is_not_rung(lab: Lab) -> None:
    lab.advance(1501)
    assert lab.take("p0#1") == "empty"
    for n in range(3):
        lab.put("q", f"m{n}")
    assert lab.rung(*PODS) == ["p0#1"]


def test_foreign_messages_are_handed_on_from_pod_to_pod(lab: Lab) -> None:
    """A producer that rings nobody: whoever looks first takes one and rings the next."""
    lab.client.lpush("q", "m1", "m2", "m3")
    woken = [PODS[0]]
    got: list[str] = []
    while woken:
        got += [lab.take(pod) for pod in woken]
        woken = lab.rung(*PODS)
    assert got == ["m1", "m2", "m3"]


def test_a_grown_fleet_rings_who_was_denied(lab: Lab) -> None:
    lab.put("q", *(f"m{n}" for n in range(9)))
    assert [lab.take(pod) for pod in PODS[1:]] == ["m0", "m1", "m2", "m3"]
    assert lab.take("p0#1") == "denied"
    for n in range(5, 7):
        lab.ops.join(f"p{n}#1", epoch=lab.epoch())
    assert lab.rung(*PODS) == ["p0#1"]


def test_the_same_wish_again_only_moves_the_times(lab: Lab) -> None:
    before = sorted(lab.client.scan_iter("*waiting:*"))
    lab.advance(BEAT_MS, *PODS)
    assert lab.take("p0#1") == "empty"
    assert sorted(lab.client.scan_iter("*waiting:*")) == before
    assert lab.client.zscore(lab.keys.namespace() + "waiting:normal:q", "p0#1") == lab.now_ms


def test_another_wish_replaces_the_first(lab: Lab) -> None:
    assert lab.take("p4#1", normal=("r",), critical=()) == "empty"
    lab.put("q", "m1")
    lab.put("c", "m2")
    assert lab.rung(*PODS) == ["p2#1", "p3#1"]
    lab.put("r", "m3")
    assert lab.rung(*PODS) == ["p2#1", "p3#1", "p4#1"]


def test_publishing_costs_the_same_with_many_waiters(server: Any) -> None:
    """Calls inside PUT, counted by Redis, do not grow with the number of waiters."""

    def calls_of_a_put(waiters: int) -> int:
        server.flushall()
        lab = Lab(server)
        members = [f"w{n}#1" for n in range(waiters)]
        lab.join(*members)
        for member in members:
            lab.take(member)
        lab.put("q", "warm")
        server.config_resetstat()
        lab.put("q", "m")
        stats = server.info("commandstats")
        return sum(
            entry["calls"] for name, entry in stats.items() if not name.startswith(("cmdstat_info", "cmdstat_config"))
        )

    few = calls_of_a_put(3)
    assert calls_of_a_put(50) <= few + 2
    assert calls_of_a_put(500) <= few + 2


def test_a_queue_that_is_a_key_of_another_type_keeps_nobody_from_beating_or_joining(lab: Lab) -> None:
    """All wait for it; there is nothing to come for, and other queues are told of as ever."""
    lab.client.set("q", "no list")
    assert [lab.ops.beat(pod).standing for pod in PODS] == ["living"] * 5
    lab.join("p5#1")
    watched = lab.ops.watch("p0#1", 1000)
    assert watched is not None
    assert watched.rung == 0
    lab.put("c", "urgent")
    assert lab.rung(*PODS) == ["p4#1"]
