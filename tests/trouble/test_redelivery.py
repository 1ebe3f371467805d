"""What is delivered again and what is not: by the life of the pod, never by time; and what is lost on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from app.local.servers import Server
from app.local.toxics import LimitData, Timeout
from tests.trouble.conftest import KEEPS_ITS_DATA
from tests.trouble.fleet import TTL_S, Fleet
from tests.trouble.test_frozen import disowned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.guard import Guard

VISIBILITY_S = 1
LONG_S = 15.0
IMPATIENT = {"visibility_timeout": VISIBILITY_S, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
"""A timeout that kombu would act upon every second."""


@pytest.fixture(scope="module")
def standing(guard: Guard) -> Iterator[Fleet]:
    """A pod on each pool, of an app with a visibility timeout of one second."""
    server = Server(guard, options=KEEPS_ITS_DATA).start()
    fleet = Fleet(guard, server, guard.folder("trouble"), config={"broker_transport_options": IMPATIENT})
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.end()
        server.kill()


def test_a_long_task_is_not_delivered_again_while_its_pod_lives(fleet: Fleet) -> None:
    """Fifteen times the visibility timeout, five times the TTL; the connection is cut and Redis restarted meanwhile."""
    tasks = [fleet.send(LONG_S, queue="critical") for _ in fleet.pods]
    fleet.wait(lambda: fleet.running() == set(tasks), "a task in each pod")
    for pod in fleet.pods:
        pod.proxy.cut()
    fleet.wait(lambda: fleet.counts().alive == len(fleet.pods), "all pods alive", TTL_S)
    fleet.server.kill()
    fleet.server.start()
    fleet.wait_done(tasks, timeout_s=LONG_S + 10)
    assert all(fleet.started(task) == 1 for task in tasks)
    assert fleet.journal("return") == []
    assert {entry["deliveries"] for entry in fleet.journal("take")} == {"0"}


@pytest.mark.parametrize("way", ["upstream", "downstream"])
def test_takes_and_ends_that_get_lost_on_the_way_are_made_good(fleet: Fleet, way: str) -> None:
    """What was asked never came, or what was answered: both are asked again, and each task is done once, by its pod.

    Upstream the server has not done it, downstream it has. A take is made good within the time limit on an answer, an
    end with the beat after that.
    """
    assert way in ("upstream", "downstream")
    before = disowned(fleet, fleet.pods)
    tasks = [fleet.send(1.0, queue="critical") for _ in fleet.pods]
    fleet.wait(lambda: fleet.running() == set(tasks), "a task in each pod")
    for pod in fleet.pods:
        pod.proxy.add(Timeout(), way)
    fleet.wait(lambda: not fleet.running(), "the tasks to end")
    for pod in fleet.pods:
        pod.proxy.clear()
    fleet.wait(lambda: fleet.held() == 0, "the ends to arrive", 3 * TTL_S)
    more = [fleet.send(0.1) for _ in range(20)]
    fleet.wait_done(more)
    assert all(fleet.started(task) == 1 for task in (*tasks, *more))
    assert fleet.journal("return") == []
    assert disowned(fleet, fleet.pods) == before


def test_what_was_taken_and_never_arrived_is_delivered(fleet: Fleet) -> None:
    """Answers are cut off in the middle, again and again: the message is the pod's from the first TAKE on."""
    for pod in fleet.pods:
        pod.proxy.add(LimitData(1200), "downstream")
    tasks = [fleet.send(0.05) for _ in range(40)]
    fleet.wait(lambda: len(fleet.journal("take")) >= 3, "takes whose answers do not get through")
    for pod in fleet.pods:
        pod.proxy.clear()
    fleet.wait_done(tasks, timeout_s=30.0)
    assert all(fleet.started(task) == 1 for task in tasks)
