"""How a task ends beside what its message says and its result costs: in time, once, and its place is free again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from app.local.proxy import Proxy
from app.local.toxics import Latency

if TYPE_CHECKING:
    from tests.worker.conftest import Fleet

APP = "tests.worker.workload"


def meta(fleet: Fleet, task: str) -> dict[str, Any]:
    """What the result back end knows of a task."""
    return json.loads(fleet.client.get(f"celery-task-meta-{task}") or "{}")


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_soft_limit_fails_no_task_whose_result_is_being_stored(fleet: Fleet, pool: str) -> None:
    with Proxy(("127.0.0.1", fleet.client.server.port)) as slow, slow.toxic(Latency(0.3)):
        config = {
            "task_ignore_result": False,
            "result_backend": f"redis://127.0.0.1:{slow.port}/0",
            "task_soft_time_limit": 0.5,
        }
        fleet.start("pod", pool=pool, WORKLOAD_CONFIG=json.dumps(config))
        ended, late = (fleet.producer.send_task(f"{APP}.work", (seconds,)).id for seconds in (0.2, 30.0))
        fleet.wait(lambda: meta(fleet, ended) and meta(fleet, late), "both results", 30.0)
        assert meta(fleet, ended)["status"] == "SUCCESS"
        assert meta(fleet, late)["result"]["exc_type"] == "SoftTimeLimitExceeded"


@pytest.mark.parametrize("gate", ["take", "requeue"])
def test_a_failure_of_a_message_that_says_nonsense_keeps_no_place(fleet: Fleet, gate: str) -> None:
    """A place that is kept would leave the critical queue to others for good: they are taken for a free place only."""
    fleet.start("pod", WORKLOAD_INSTALL=json.dumps({"gate": gate}))
    for nonsense in ("many", None, [3], -5):
        fleet.producer.send_task(f"{APP}.poison", ("it rejects",), headers={"retries": nonsense})
        fleet.send("failing", "plain", headers={"retries": nonsense})
    good = fleet.send("work", queue="critical")
    fleet.wait_done(good)
    fleet.wait(lambda: fleet.counts().busy == 0 and fleet.waiting() == 0, "the others to end")
