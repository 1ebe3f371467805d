"""Permits of pods that fetch their messages another way: denied, waiting, let in again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.throttle.lab import Lab

PODS = [f"p{n}#1" for n in range(5)]
QUEUES = ("q", "r")


@pytest.fixture
def lab(server: Any) -> Lab:
    """Five pods at capacity 4: p1 to p4 hold a permit each, p0 none."""
    lab = Lab(server)
    lab.join(*PODS)
    assert all(lab.ops.acquire(pod, 1) for pod in PODS[1:])
    return lab


def test_who_is_denied_is_rung_when_a_slot_is_free_and_there_is_work(lab: Lab) -> None:
    assert lab.ops.acquire("p0#1", 1) is False
    lab.client.rpush("q", "put back")
    assert lab.ops.knock("p0#1", QUEUES) is False
    assert lab.rung(*PODS) == []
    assert lab.ops.ack("p1#1", 1)
    assert lab.rung(*PODS) == ["p0#1"]
    assert lab.ops.knock("p0#1", QUEUES) is True
    assert lab.rung(*PODS) == []


def test_a_free_slot_without_work_rings_nobody(lab: Lab) -> None:
    assert lab.ops.knock("p0#1", QUEUES) is False
    assert lab.ops.ack("p1#1", 1)
    assert lab.rung(*PODS) == []


def test_who_names_no_queue_is_rung_for_any_slot(lab: Lab) -> None:
    """The queues of another broker cannot be looked into."""
    assert lab.ops.knock("p0#1") is False
    assert lab.ops.ack("p1#1", 1)
    assert lab.rung(*PODS) == ["p0#1"]


def test_a_slot_that_became_free_before_the_knock_is_found_by_it(lab: Lab) -> None:
    """No bell is lost between the denial and the registration: the knock itself looks."""
    assert lab.ops.acquire("p0#1", 1) is False
    assert lab.ops.ack("p1#1", 1)
    assert lab.ops.knock("p0#1", QUEUES) is True


def test_who_is_let_in_to_work_keeps_the_slot_for_a_second(lab: Lab) -> None:
    lab.client.rpush("q", "m")
    assert lab.ops.ack("p1#1", 1)
    assert lab.ops.knock("p0#1", QUEUES) is True
    assert lab.ops.acquire("p1#1", 2) is False
    assert lab.ops.acquire("p0#1", 1) is True
    assert lab.ops.ack("p0#1", 1)
    assert lab.ops.knock("p0#1", QUEUES) is True
    lab.advance(1001)
    assert lab.ops.acquire("p1#1", 2) is True


def test_who_is_let_in_to_empty_queues_keeps_nothing(lab: Lab) -> None:
    assert lab.ops.ack("p1#1", 1)
    assert lab.ops.knock("p0#1", QUEUES) is True
    assert lab.ops.acquire("p1#1", 2) is True


def test_the_baton_goes_on_while_there_is_work_and_room(lab: Lab) -> None:
    """Two slots and one bell, because a kept slot ran out: the pod that is let in rings the other."""
    lab.client.rpush("q", *(f"m{n}" for n in range(9)))
    lab.join("p5#1", "p6#1")
    assert lab.ops.acquire("p5#1", 1)
    waiting = ["p0#1", "p6#1"]
    assert [lab.ops.knock(pod, QUEUES) for pod in waiting] == [False, False]
    assert lab.ops.ack("p1#1", 1, keep=True)
    lab.advance(1001)
    assert lab.ops.ack("p2#1", 1)
    (first,) = lab.rung(*waiting)
    assert lab.ops.knock(first, QUEUES) is True
    assert lab.rung(*waiting) == [pod for pod in waiting if pod != first]


def test_a_bell_without_use_is_passed_on(lab: Lab) -> None:
    lab.client.rpush("q", "m")
    assert lab.ops.knock("p0#1", QUEUES) is False
    assert lab.ops.ack("p1#1", 1)
    assert lab.rung("p0#1") == ["p0#1"]
    assert lab.ops.acquire("p1#1", 2) is True
    assert lab.ops.knock("p0#1", QUEUES) is False
    assert lab.ops.ack("p2#1", 1)
    assert lab.rung("p0#1") == ["p0#1"]


def test_who_is_no_living_member_is_told_so(lab: Lab) -> None:
    assert lab.ops.knock("stranger#1", QUEUES) is None
    lab.ops.drain("p0#1")
    assert lab.ops.knock("p0#1", QUEUES) is None


def test_what_was_put_back_is_counted(lab: Lab) -> None:
    lab.ops.knock("p0#1", QUEUES, put_back=2)
    lab.ops.knock("p0#1", QUEUES)
    lab.ops.knock("p0#1", QUEUES, put_back=1)
    assert lab.client.hget(lab.keys.stats(), "requeues") == b"3"
    assert lab.client.pttl(lab.keys.stats()) > 0


def test_a_permit_given_back_keeps_the_slot_only_for_work_that_is_there(lab: Lab) -> None:
    assert lab.ops.knock("p0#1", QUEUES) is False
    lab.client.rpush("r", "m")
    assert lab.ops.ack("p1#1", 1, keep=True, work=QUEUES)
    assert lab.rung(*PODS) == []
    assert lab.ops.acquire("p0#1", 1) is False
    lab.client.delete("r")
    assert lab.ops.ack("p2#1", 1, keep=True, work=QUEUES)
    assert lab.ops.acquire("p0#1", 1) is True


def test_who_is_denied_gives_the_slot_back_that_it_kept(lab: Lab) -> None:
    """It kept its slot at a task's end; meanwhile a critical task made another pod busy, and its next one is denied."""
    lab.client.rpush("q", "m1", "m2")
    assert lab.ops.ack("p1#1", 1, keep=True, work=QUEUES)
    assert lab.ops.acquire("p0#1", 1, critical=True)
    assert lab.ops.acquire("p1#1", 2) is False
    assert lab.ops.knock("p1#1", QUEUES) is False
    assert lab.ops.counts().busy == 4
    assert lab.ops.ack("p2#1", 1)
    assert lab.rung(*PODS) == ["p1#1"]
