"""A task that asks to be run again, and the lane in which it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.features.table import feature
from tests.features.test_times import IN_ITS_POD

if TYPE_CHECKING:
    from tests.features.fleet import Fleet

GROUP = "Retries"


def lanes(fleet: Fleet) -> list[tuple[str, str]]:
    """Lane and queue of each take. The gate before the pool learns the queue from the message itself."""
    takes = fleet.journal("take")
    if fleet.gate == "take":
        return [(entry["lane"], entry["key"].removeprefix(fleet.setup.prefix)) for entry in takes]
    runs = fleet.runs("start")[-len(takes) :]
    return [(entry["lane"], run["queue"]) for entry, run in zip(takes, runs, strict=True)]


def finishes(fleet: Fleet, task: str, *, retries: int) -> None:
    """Wait until a task has succeeded, and count its runs.

    Its result is not asked for: Celery writes "RETRY" after it has published the retry, which may be done by then.
    """
    fleet.wait_done(task)
    fleet.settle()
    assert fleet.started(task) == retries + 1


@feature(GROUP, '`retry`: in the critical lane (`retry_lane="critical"`)')
def test_retry_in_the_critical_lane(fleet: Fleet, pool: str) -> None:
    task = fleet.send("flaky", 3)
    finishes(fleet, task, retries=3)
    assert lanes(fleet) == [("normal", "celery"), *[("critical", "critical")] * 3]


@feature(GROUP, "`retry` of what came by a topic exchange: the same (plain Celery loses it)")
def test_retry_of_what_came_by_a_topic(fleet: Fleet, pool: str) -> None:
    task = fleet.send("flaky", 2, queue="letters", routing_key="letters.first")
    finishes(fleet, task, retries=2)
    assert [lane for lane, _ in lanes(fleet)] == ["normal", "critical", "critical"]


@feature(GROUP, '`retry`: in its queue (`retry_lane="normal"`)', on="wide")
def test_retry_in_its_queue(fleet: Fleet, pool: str) -> None:
    task = fleet.send("flaky", 2)
    finishes(fleet, task, retries=2)
    assert lanes(fleet) == [("normal", "celery")] * 3


@feature(GROUP, "`retry` of what came by a topic exchange, in its queue (plain Celery loses it)", on="wide")
def test_retry_of_what_came_by_a_topic_in_its_queue(fleet: Fleet, pool: str) -> None:
    task = fleet.send("flaky", 2, queue="letters", routing_key="letters.first")
    finishes(fleet, task, retries=2)
    assert [lane for lane, _ in lanes(fleet)] == ["normal"] * 3


@feature(GROUP, '`retry`: in its queue (`@app.task(retry_lane="normal")`)')
def test_retry_of_a_task_that_says_its_lane(fleet: Fleet, pool: str) -> None:
    task = fleet.send("stubborn", 2)
    finishes(fleet, task, retries=2)
    assert lanes(fleet) == [("normal", "celery")] * 3


@feature(GROUP, "`retry(queue=...)`: where it says")
def test_retry_with_a_queue(fleet: Fleet, pool: str) -> None:
    task = fleet.send("flaky", 2, 0.0, "passing")
    finishes(fleet, task, retries=2)
    assert lanes(fleet) == [("normal", "celery"), ("normal", "passing"), ("critical", "critical")]


@feature(GROUP, "`retry(countdown=...)`: waits in Redis, without a slot", otherwise=IN_ITS_POD)
def test_retry_with_a_countdown(fleet: Fleet, pool: str) -> None:
    task = fleet.send("flaky", 1, 1.5)
    fleet.wait(lambda: fleet.parked() == 1, "the retry parked")
    fleet.wait(lambda: fleet.operations.counts().busy == 0, "a free slot")
    finishes(fleet, task, retries=1)
    first, second = fleet.runs("start", task)
    assert second["at"] - first["at"] >= 1.5


@feature(GROUP, "a retry past `max_retries`: failed")
def test_retry_past_the_limit(fleet: Fleet, pool: str) -> None:
    task = fleet.send("flaky", 7)
    assert "Can't retry" in fleet.result(task)
    assert fleet.started(task) == 6
