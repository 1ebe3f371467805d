"""Every way in which a message can end in a real worker, on all four pools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.worker.conftest import on_every_pool

if TYPE_CHECKING:
    from tests.worker.conftest import Fleet


@on_every_pool
def test_every_end_of_a_message(fleet: Fleet, pool: str) -> None:
    fleet.start("pod", pool=pool)
    plain = [fleet.send("work") for _ in range(5)]
    early = fleet.send("early", 0.2)
    retried = fleet.send("retried")
    requeued = fleet.send("rejecting", True)  # noqa: FBT003 - a message's argument
    late = fleet.send("work", countdown=1.0)
    critical = fleet.send("work", queue="critical")
    rejected = fleet.send("rejecting", False)  # noqa: FBT003 - a message's argument
    unknown = fleet.send("no_such_task")
    fleet.client.lpush("celery", "no JSON at all", json.dumps({"body": "", "properties": {}}), json.dumps([1]))
    fleet.wait_done(*plain, early, retried, requeued, late, critical)
    fleet.wait(lambda: len(fleet.dead()) == 5, "five dead letters")
    assert sorted(reason.partition(":")[0] for reason in fleet.dead()) == [
        "rejected",
        "undecodable",
        "undecodable",
        "unknown message",
        "unknown task tests.worker.workload.no_such_task",
    ]
    assert fleet.started(retried) == 2
    assert fleet.started(requeued) == 2
    assert fleet.started(rejected) == 1
    assert fleet.started(unknown) == 0
    assert all(fleet.started(task) == 1 for task in [*plain, early, late, critical])
    assert fleet.violations() == 0
    assert fleet.waiting() == 0
    assert len(fleet.journal("empty")) == 1
    assert not fleet.client.keys("unacked*")


@on_every_pool
def test_a_pod_stays_busy_until_an_early_acknowledged_task_ends(fleet: Fleet, pool: str) -> None:
    fleet.start("pod", pool=pool)
    task = fleet.send("early", 1.0)
    fleet.wait(lambda: fleet.journal("empty"), "the early acknowledgement")
    assert fleet.counts().busy == 1
    fleet.wait_done(task)
    fleet.wait(lambda: fleet.counts().busy == 0, "a free slot")


@pytest.mark.parametrize("options", [["--without-gossip", "--without-mingle", "--without-heartbeat"], ["-Q", "celery"]])
def test_options_of_the_command_line(fleet: Fleet, options: list[str]) -> None:
    fleet.start("pod", arguments=options)
    fleet.wait_done(fleet.send("work"), fleet.send("work", queue="critical"))
