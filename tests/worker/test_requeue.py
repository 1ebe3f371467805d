"""The requeue gate in real workers: the same rule, no task lost or stuck, and few put back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.worker.conftest import on_every_pool

if TYPE_CHECKING:
    from tests.worker.conftest import Fleet

GATE = {"WORKLOAD_INSTALL": '{"gate": "requeue"}'}


@on_every_pool
def test_every_end_of_a_task_gives_its_permit_back(fleet: Fleet, pool: str) -> None:
    fleet.start("pod", pool=pool, **GATE)
    plain = [fleet.send("work") for _ in range(5)]
    early = fleet.send("early", 0.2)
    retried = fleet.send("retried")
    requeued = fleet.send("rejecting", True)  # noqa: FBT003 - a message's argument
    late = fleet.send("work", countdown=1.0)
    critical = fleet.send("work", queue="critical")
    rejected = fleet.send("rejecting", False)  # noqa: FBT003 - a message's argument
    fleet.wait_done(*plain, early, retried, requeued, late, critical)
    assert fleet.started(retried) == 2
    assert fleet.started(requeued) == 2
    assert fleet.started(rejected) == 1
    assert all(fleet.started(task) == 1 for task in [*plain, early, late, critical])
    assert fleet.violations() == 0
    assert fleet.waiting() == 0
    fleet.wait(lambda: fleet.counts().busy == 0, "a free pod")
    assert fleet.put_back() == 0
