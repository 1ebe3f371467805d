# pyright: basic
"""What a large task has freed goes back to the system. Measured in real workers, with the trimming and without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from celery import Celery

import throttle
from tests.worker.conftest import APP
from throttle.worker.memory import MIB, trimmer

if TYPE_CHECKING:
    from tests.worker.conftest import Fleet

BLOCKS = 4000
"""Of 50 kB: 200 MB."""


def resident_before_and_after(fleet: Fleet, pool: str, trim_mb: int) -> tuple[int, int]:
    """MiB of the process that runs the tasks, before and after a large one."""
    results = {"task_ignore_result": False, "result_backend": fleet.client.url}
    fleet.start("one", pool=pool, THROTTLE_TRIM_MB=str(trim_mb), WORKLOAD_CONFIG=json.dumps(results))
    with Celery("asks", broker=fleet.client.url, backend=fleet.client.url, set_as_current=False) as asks:
        throttle.install(asks)
        before = asks.send_task(f"{APP}.resident").get(timeout=15)
        asks.send_task(f"{APP}.large", [BLOCKS]).get(timeout=15)
        after = asks.send_task(f"{APP}.resident").get(timeout=15)
    return before // MIB, after // MIB


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_large_tasks_memory_goes_back(fleet: Fleet, pool: str) -> None:
    assert trimmer() is not None, "this machine's C library is not glibc; run the tests on one with it"
    before, after = resident_before_and_after(fleet, pool, 64)
    assert after - before < 30, (before, after)


def test_without_trimming_it_stays(fleet: Fleet) -> None:
    """Else the test above shows nothing."""
    before, after = resident_before_and_after(fleet, "prefork", 0)
    assert after - before > 120, (before, after)
