"""Resumable tasks on real workers: killed on every pool, at their limit, failed, retried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from tasks.jobs.resumable import FleetStore
from tests.support.leaks import leaked_keys
from tests.tasks.bench import APP, COUNT, SECONDS, bench

if TYPE_CHECKING:
    from tests.tasks.bench import Bench

__all__ = ["bench"]

POOLS = ("prefork", "threads", "gevent", "solo")


def test_a_pod_killed_at_sixty_percent_is_followed_by_one_that_goes_on_there(bench: Bench) -> None:
    pods = bench.start(*POOLS)
    tasks = [bench.send(COUNT, SECONDS) for _ in POOLS]
    bench.wait_at(0.6, *tasks)
    for pod in pods:
        pod.kill()
    bench.start(*POOLS)
    for task in tasks:
        bench.assert_done(task, at_least=0.6)
    bench.wait(lambda: not bench.progress(), "the checkpoints to be cleared")
    assert [key for key in leaked_keys(bench.workers.client) if ":task:" in key] == []


def test_a_pool_child_killed_at_sixty_percent_costs_one_interval(bench: Bench) -> None:
    (pod,) = bench.start("prefork")
    task = bench.send(COUNT, SECONDS)
    bench.wait_at(0.6, task)
    (child,) = (child for child in psutil.Process(pod.pid).children() if "standin" not in " ".join(child.cmdline()))
    child.kill()
    bench.assert_done(task, at_least=0.6)


def test_a_soft_limit_saves_the_last_step_and_the_same_id_goes_on(bench: Bench) -> None:
    bench.start("prefork")
    first = bench.send(COUNT, SECONDS, soft_time_limit=2)
    assert type(bench.wait_end(first)["result"]).__name__ == "SoftTimeLimitExceeded"
    taken = len(bench.steps(first))
    (listed,) = FleetStore(bench.app).list()
    assert (listed.status, listed.task) == ("stopped", f"{APP}.steps")
    assert taken - 1 <= round(listed.progress * COUNT) <= taken
    bench.assert_done(bench.send(COUNT, 0.0, task_id=first))
    assert len(bench.steps(first)) - COUNT <= 1


@pytest.mark.parametrize("ending", ["retry", "fail"])
def test_a_retry_and_a_run_after_a_failure_go_on(bench: Bench, ending: str) -> None:
    bench.start("threads")
    task = bench.send(COUNT, 0.0, ending)
    if ending == "fail":
        assert isinstance(bench.wait_end(task)["result"], ZeroDivisionError)
        (listed,) = FleetStore(bench.app).list()
        assert listed.status == "failed"
        bench.send(COUNT, 0.0, ending, task_id=task)
    assert bench.wait_end(task)["result"] == COUNT
    assert bench.steps(task) == list(range(COUNT))
    assert bench.trace(task, "begun") == ["0", str(COUNT // 2)]
    assert bench.trace(task, "compensated") == []
