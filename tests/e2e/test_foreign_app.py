"""An application that only called ``throttle.install``: all that it could do before, and what it gained."""
# pyright: basic

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from celery import chain, chord, group
from celery.result import AsyncResult
from pytest_celery.vendors.worker.tasks import add, fail, identity, sleep, xsum

from tests.e2e.deployment import deployed, on_pools
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pytest_celery import CeleryTestSetup, CeleryTestWorker

ALL_MAY_WORK = {"THROTTLE_RATIO": "1"}


@deployed(*on_pools("prefork", "threads", "gevent", "solo", settings=ALL_MAY_WORK))
def test_canvas_and_results_over_two_workers(celery_setup: CeleryTestSetup) -> None:
    assert celery_setup.ready(ping=True, control=True)
    assert add.delay(1, 2).get(timeout=20) == 3
    assert answer(chain(add.s(1, 2), add.s(3), add.s(4))) == 10
    assert answer(group(identity.s(number) for number in range(20))) == list(range(20))
    assert answer(chord((add.s(number, number) for number in range(10)), xsum.s())) == 90
    for worker in workers_of(celery_setup):
        worker.assert_log_exists("succeeded")


def test_a_failure_reaches_the_back_end_as_a_failure(celery_setup: CeleryTestSetup) -> None:
    result = fail.delay("on purpose")
    with pytest.raises(RuntimeError, match="on purpose"):
        result.get(timeout=20)
    assert AsyncResult(result.id, app=celery_setup.app).state == "FAILURE"
    assert identity.delay("the slot is free again").get(timeout=20) == "the slot is free again"


def test_critical_work_is_done_while_normal_work_fills_the_fleet(celery_setup: CeleryTestSetup) -> None:
    """Two pods, of which one may do normal work."""
    running, waiting = sleep.delay(3), sleep.delay(0)
    worker_of(celery_setup, running)
    assert identity.s("now").apply_async(queue="critical").get(timeout=2) == "now"
    assert not running.ready()
    assert not waiting.ready()
    assert waiting.get(timeout=20) is True


def test_what_a_killed_worker_was_doing_is_done_by_the_other(celery_setup: CeleryTestSetup) -> None:
    result = sleep.delay(1)
    victim = worker_of(celery_setup, result)
    victim.kill()
    assert result.get(timeout=20) is True
    (survivor,) = (worker for worker in workers_of(celery_setup) if worker is not victim)
    survivor.assert_log_exists(f"[{result.id}] succeeded")
    victim.restart()
    assert celery_setup.ready(ping=True, control=True)


def answer(canvas: Any) -> Any:
    """What the last task of a canvas returns."""
    return canvas.delay().get(timeout=20)


def workers_of(celery_setup: CeleryTestSetup) -> list[CeleryTestWorker]:
    """Both workers."""
    cluster: Any = celery_setup.worker_cluster
    return list(cluster)


def worker_of(celery_setup: CeleryTestSetup, result: AsyncResult) -> CeleryTestWorker:
    """The worker that has received this task."""

    def found() -> CeleryTestWorker | None:
        received = f"[{result.id}] received"
        return next((worker for worker in workers_of(celery_setup) if received in worker.logs()), None)

    worker = wait_until(found, what="a worker to receive the task")
    assert worker is not None
    return worker
