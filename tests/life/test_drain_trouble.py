"""Drains that do not go as they should: tasks that outlive their grace, a Redis that is away at the end."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from app.local.proxy import Proxy
from app.local.toxics import ResetPeer
from tests.worker.conftest import on_every_pool
from tests.worker.test_drain import (
    CONFIG,
    HASTIEST,
    HASTY,
    PREFETCHED,
    mend_and_finish,
    nothing_is_counted,
    queued,
    reach,
    runs,
    start,
    wait_for,
)
from throttle.control import ask

if TYPE_CHECKING:
    from tests.worker.conftest import Fleet


@on_every_pool
def test_what_was_left_over_and_ends_after_all_leaves_the_pod_dry(fleet: Fleet, pool: str) -> None:
    pod = start(fleet, pool, **HASTIEST)
    task = fleet.send("swallows", 3.0)
    runs(fleet, task)
    ask(reach(fleet), {})
    wait_for(fleet, "left over")
    wait_for(fleet, "dry")
    assert fleet.workers.done() == [task]
    nothing_is_counted(fleet)
    os.kill(pod.pid, signal.SIGTERM)
    assert pod.wait(20) == 0, pod.read_log()
    assert queued(fleet) == []


@on_every_pool
def test_an_end_that_redis_does_not_hear_of_is_no_clean_one(fleet: Fleet, pool: str) -> None:
    pod = start(fleet, pool)
    task = fleet.send("work", 2.0)
    runs(fleet, task)
    server = int(fleet.client.info("server")["process_id"])
    os.kill(server, signal.SIGSTOP)
    try:
        os.kill(pod.pid, signal.SIGTERM)
        assert pod.wait(60) == 3, pod.read_log()
    finally:
        os.kill(server, signal.SIGCONT)
    assert "Redis was not told of the ends of 1 tasks: their messages come again" in pod.read_log()
    start(fleet, pool, "other")
    fleet.wait_done(task)
    fleet.wait(lambda: fleet.started(task) == 2, "the message to come again")


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_comes_to_its_beginning_during_a_drain_keeps_its_place(fleet: Fleet, pool: str) -> None:
    start(fleet, pool, **CONFIG)
    first = fleet.send("draining", "asks", 0.0001)
    runs(fleet, first)
    others = [fleet.send("work") for _ in range(PREFETCHED + 1)]
    fleet.wait(lambda: len(queued(fleet)) == 1, "the others to be fetched")
    ask(reach(fleet), {})
    wait_for(fleet, "dry")
    assert queued(fleet) == others
    assert not any(fleet.started(task) for task in others)
    nothing_is_counted(fleet)


@on_every_pool
def test_an_error_made_of_the_deadline_is_no_failure(fleet: Fleet, pool: str) -> None:
    pod = start(fleet, pool, **HASTY)
    task = fleet.send("masks")
    runs(fleet, task)
    os.kill(pod.pid, signal.SIGTERM)
    assert pod.wait(20) == 0, pod.read_log()
    assert fleet.client.llen(f"told:{task}") == 1, pod.read_log()
    assert queued(fleet) == [task]
    nothing_is_counted(fleet)
    mend_and_finish(fleet, pool, task)


@on_every_pool
def test_a_start_that_is_ended_after_the_join_leaves_no_member(fleet: Fleet, pool: str) -> None:
    task = fleet.send("work")
    pod = start(fleet, pool, ready=False)
    fleet.wait(lambda: fleet.counts().alive, "it to join")
    os.kill(pod.pid, signal.SIGTERM)
    assert pod.wait(20) == 0, pod.read_log()
    nothing_is_counted(fleet)
    assert queued(fleet) == [task] or fleet.workers.done() == [task]


@on_every_pool
def test_a_redis_that_is_away_for_a_moment_hears_of_the_end(fleet: Fleet, pool: str) -> None:
    with Proxy(("127.0.0.1", fleet.client.server.port)) as way:
        pod = start(fleet, pool, REDIS_URL=f"redis://127.0.0.1:{way.port}/0")
        with way.toxic(ResetPeer()):
            os.kill(pod.pid, signal.SIGTERM)
            fleet.wait(lambda: "takes nothing more" in pod.read_log(), "the drain to begin")
            time.sleep(0.5)  # LEAVE fails meanwhile
        assert pod.wait(20) == 0, pod.read_log()
        counts = fleet.counts()
        assert (counts.alive, counts.draining, counts.silent) == (0, 0, 0), pod.read_log()
