"""Beside the tasks of a worker: its stand-in, the doorkeeper, and the question whether a take still counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.worker.conftest import APP, KEYS, POOLS
from throttle.errors import NotAMember
from throttle.worker.ownership import still_mine

if TYPE_CHECKING:
    from tests.worker.conftest import EveryPool, Fleet

HOGGED_S = 5.0  # longer than the TTL of the test pods and a stand-in's grace
on_every_pool = pytest.mark.parametrize("pool", POOLS)


def hogs(fleet: Fleet, pool: str) -> None:
    """A task that holds Python's lock past the TTL is delivered once, and its pod counted all the while."""
    pods = fleet.start("one", "two", pool=pool)
    hog = fleet.send("hog", HOGGED_S)
    fleet.wait(lambda: fleet.started(hog), "the hog started")
    fleet.wait_done(hog, timeout_s=HOGGED_S + 15)
    assert fleet.started(hog) == 1
    assert fleet.journal("return", "gone") == []
    assert all(pod.running for pod in pods)


def test_work_that_holds_the_lock_does_not_make_its_pod_look_dead(every_pool: EveryPool) -> None:
    every_pool(hogs, {})


def asks(fleet: Fleet, pool: str) -> None:
    """A pod that was frozen past its TTL is told that its take is not its own any more; the other that it is."""
    pods = fleet.start("one", "two", pool=pool)
    task = fleet.send("asking", 1.0)
    fleet.wait(lambda: fleet.started(task), "running")
    taken = fleet.journal("take")[0]
    frozen = next(pod for pod in pods if taken["member"].startswith(pod.name + "#"))
    frozen.pause()
    answers = f"asked:{task}"
    fleet.wait(lambda: fleet.client.llen(answers) == 1, "the other pod's answer")
    frozen.resume()
    fleet.wait(lambda: fleet.client.llen(answers) == 2, "the frozen pod's answer")
    assert fleet.client.lrange(answers, 0, -1) == [b"1", b"0"]


def test_a_task_can_ask_whether_its_take_still_counts(every_pool: EveryPool) -> None:
    every_pool(asks, {})


def test_a_task_that_was_not_taken_has_nothing_to_ask_about() -> None:
    from tests.worker.workload import asking  # noqa: PLC0415 - an app of its own, made when it is needed

    with pytest.raises(NotAMember, match="was not taken by a worker of a fleet"):
        still_mine(asking)


@on_every_pool
def test_a_foreign_message_is_heard_by_the_doorkeeper(fleet: Fleet, pool: str) -> None:
    """Plain LPUSH, twenty times: some pod is the doorkeeper and rings one pod for each."""
    fleet.start("one", "two", pool=pool)
    keeper = KEYS.namespace() + "doorkeeper"
    fleet.wait(lambda: fleet.client.exists(keeper), "a doorkeeper")
    first = fleet.client.get(keeper)
    for _ in range(20):
        fleet.client.rpush("celery", plain_message(fleet))
        fleet.wait(lambda: fleet.waiting() == 0 and fleet.held() == 0, "taken and done")
    assert fleet.client.get(keeper) == first, "one doorkeeper all the while"
    assert len(fleet.journal("take")) == 20


def plain_message(fleet: Fleet) -> bytes:
    """What a producer without the library would have pushed: a message of the test app, from a queue of its own."""
    fleet.send("work", 0.0, queue="elsewhere")
    found = fleet.client.rpop("elsewhere")
    assert isinstance(found, bytes)
    assert APP.encode() in found
    return found
