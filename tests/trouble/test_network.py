"""The way to Redis is cut, silent, slow or in pieces: each pod works on by itself; nothing is lost or done twice."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

import pytest

from app.local.servers import Server
from app.local.toxics import Bandwidth, Hold, Latency, LimitData, Slicer, Timeout
from tests.support.waiting import last
from tests.trouble.conftest import KEEPS_ITS_DATA
from tests.trouble.fleet import TTL_S, Fleet, Load
from throttle.worker.drain import LEFT_OVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.guard import Guard
    from app.local.toxics import Toxic

SILENCE_S = TTL_S + 1.5


@pytest.fixture(scope="module")
def standing(guard: Guard) -> Iterator[Fleet]:
    """A pod on each pool; what befalls the way to a server is the same for each kind of server."""
    server = Server(guard, options=KEEPS_ITS_DATA).start()
    fleet = Fleet(guard, server, guard.folder("trouble"))
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.end()
        server.kill()


def everywhere(fleet: Fleet, toxic: Toxic) -> ExitStack:
    """A toxic on every pod's way to Redis."""
    stack = ExitStack()
    for pod in fleet.pods:
        stack.enter_context(pod.proxy.toxic(toxic))
    return stack


def test_cut_again_and_again(fleet: Fleet) -> None:
    """RST on every connection of every pod, ten times: also while an answer is under way."""
    with Load(fleet, per_s=40, seconds=0.05):
        for _ in range(10):
            done = len(fleet.done())
            for pod in fleet.pods:
                pod.proxy.cut()
            fleet.wait(lambda done=done: len(fleet.done()) > done + 2, "work to go on")


def test_cut_in_the_middle_of_an_answer(fleet: Fleet) -> None:
    """Answers that are never whole: what was taken on the way is asked for again under its number."""
    with Load(fleet, per_s=40, seconds=0.05):
        for count in (1500, 2500, 4000):
            with everywhere(fleet, LimitData(count)):
                last(0.7)
            fleet.each_consumes(10.0)


@pytest.mark.parametrize("toxic", [Timeout(), Hold()], ids=["half-open", "held"])
def test_silence_past_the_ttl(fleet: Fleet, toxic: Toxic) -> None:
    """Every connection is silent, new ones too. Half-open ones stay so for good, held ones say all at its end."""
    with Load(fleet, per_s=20, seconds=0.05):
        fleet.wait(lambda: fleet.counts().busy > 0, "work under way")
        with everywhere(fleet, toxic):
            last(SILENCE_S)
        fleet.wait(lambda: fleet.counts().alive == len(fleet.pods), "all pods alive", TTL_S)
        assert fleet.each_consumes(10.0) < 8.0


def test_old_connections_half_open_and_new_ones_good(fleet: Fleet) -> None:
    """As after the loss of a table of connections on the way: pods find out within the limit on an answer."""
    with everywhere(fleet, Timeout()):
        fleet.wait(lambda: all("no beat" in pod.process.read_log()[-3000:] for pod in fleet.pods), "no beats")
    assert fleet.each_consumes(10.0) < 8.0


def test_a_frozen_redis(fleet: Fleet) -> None:
    with Load(fleet, per_s=20, seconds=0.05):
        fleet.wait(lambda: fleet.counts().busy > 0, "work under way")
        fleet.server.process.pause()
        last(SILENCE_S)
        fleet.server.process.resume()
        fleet.wait(lambda: fleet.counts().alive == len(fleet.pods), "all pods alive", TTL_S)
        assert fleet.each_consumes(10.0) < 8.0


@pytest.mark.parametrize(
    "toxic",
    [Latency(0.2, jitter_s=0.1), Bandwidth(30_000), Slicer(20, 15, pause_s=0.002)],
    ids=["latency", "bandwidth", "slices"],
)
def test_a_bad_line(fleet: Fleet, toxic: Toxic) -> None:
    """Work goes on meanwhile, by the rule, and no pod is given up."""
    with everywhere(fleet, toxic):
        gone = len(fleet.journal("gone"))
        tasks = [fleet.send(0.1) for _ in range(12)]
        fleet.wait_done(tasks, timeout_s=30.0)
        assert len(fleet.journal("gone")) == gone


def test_redis_is_away_for_longer_than_celerys_pauses_grow(fleet: Fleet) -> None:
    """Nobody listens for 25 seconds. Afterwards pods are back within five, not after a pause of half a minute."""
    for pod in fleet.pods:
        pod.proxy.refuse()
    last(25.0)
    for pod in fleet.pods:
        pod.proxy.accept()
    fleet.wait(lambda: fleet.counts().alive == len(fleet.pods), "all pods alive", TTL_S)
    assert fleet.each_consumes(10.0) < 5.0


@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
def test_a_pod_can_be_stopped_while_redis_is_away(guard: Guard, *, silent: bool) -> None:
    """SIGTERM ends it with what it runs done, however Redis is away; the exit code says that Redis was not told."""
    server = Server(guard).start()
    fleet = Fleet(guard, server, guard.folder("trouble"))
    try:
        fleet.start()
        tasks = {fleet.send(1.0, queue="critical") for _ in fleet.pods}
        fleet.wait(lambda: fleet.running() == tasks, "a task in each pod")
        for pod in fleet.pods:
            if silent:
                pod.proxy.add(Timeout())
            else:
                pod.proxy.refuse()
            pod.process.terminate()
        for pod in fleet.pods:
            assert pod.process.wait(30.0) == LEFT_OVER, pod.process.read_log()[-3000:]
            assert "not told of the ends of 1 tasks" in pod.process.read_log()
        assert set(fleet.done()) == tasks
    finally:
        fleet.end()
        server.kill()


def test_results_that_nobody_takes(guard: Guard) -> None:
    """The connections for results are half-open as well: no place is kept for the two minutes that are Celery's own."""
    server = Server(guard).start()
    settings = {"TASK_QUEUE": "celery", "PULSE_EVERY": "0"}
    fleet = Fleet(
        guard, server, guard.folder("trouble"), app="app.celery", work="tasks.jobs.loads.sleep", settings=settings
    )
    try:
        fleet.start()
        fleet.producer.conf.task_ignore_result = False
        tasks = [with_result(fleet) for _ in fleet.pods]
        fleet.wait(lambda: fleet.running() == set(tasks), "a task in each pod")
        with everywhere(fleet, Timeout()):
            last(3.0)
        fleet.wait(lambda: fleet.counts().alive == len(fleet.pods), "all pods alive", TTL_S + 2)
        assert fleet.each_consumes(40.0) < 25.0
        fleet.wait(lambda: all(server_has_result(fleet, task) for task in tasks), "the results", 30.0)
        assert all(fleet.started(task) == 1 for task in tasks)
    finally:
        fleet.end()
        server.kill()


def with_result(fleet: Fleet) -> str:
    """Send a task whose result is kept."""
    return str(fleet.producer.send_task(fleet.work, (1.0,), queue="critical").id)


def server_has_result(fleet: Fleet, task: str) -> bool:
    """Whether a result was stored as a success."""
    found = cast("bytes | None", fleet.client.get(f"celery-task-meta-{task}"))
    return found is not None and b"SUCCESS" in found
