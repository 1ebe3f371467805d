# pyright: basic
"""What a worker's pool and its remote control can do."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from celery.concurrency.base import apply_target

from tests.features.table import Cannot, feature, mentions

if TYPE_CHECKING:
    from tests.features.fleet import Fleet

CONTROL = "Remote control"
POOL = "The pool"
ONE_AT_A_TIME = Cannot(
    "Celery's pool runs a task where it receives it: one at a time, none of them waiting beside it.",
    lambda pool: pool(app=None).on_apply is apply_target,
)
FULL = Cannot(
    "Celery's pool stops the worker's loop while it is full (`Pool.spawn` waits), so that one message waits in the pod "
    "at most, whatever the multiplier.",
    lambda pool: mentions(pool, "_quick_put = self._pool.spawn"),
)
NO_GROWTH = Cannot("Celery's pool has a fixed size: it has no `grow`.", lambda pool: not mentions(pool, "grow"))
NO_CHILDREN = Cannot(
    "Celery's pool has no child processes that it could replace.", lambda pool: not mentions(pool, "maxtasksperchild")
)


def meets(fleet: Fleet, key: str, count: int) -> None:
    """Prove that so many tasks run at once: each waits for all."""
    tasks = [fleet.send("meet", key, count) for _ in range(count)]
    assert [fleet.result(task) for task in tasks] == [count] * count


def most_held(fleet: Fleet, key: str, expected: int) -> None:
    """Let more tasks wait for a key than the pod may have, and see how many it takes."""
    fleet.wait(lambda: fleet.held() == 0, "the acknowledgements of what was before")
    tasks = [fleet.send("wait_for", key) for _ in range(expected + 4)]
    fleet.wait(lambda: fleet.held() == expected, f"{expected} held, {fleet.held()} are")
    assert "ok" in fleet.control("ping")  # a whole turn of the loop, in which it could take more
    assert fleet.held() == expected
    fleet.open(key)
    fleet.wait_done(*tasks)


@feature(POOL, "`--concurrency 4`", cannot={"solo": ONE_AT_A_TIME})
def test_concurrency(fleet: Fleet, pool: str) -> None:
    meets(fleet, "concurrency", 4)


@feature(POOL, "`worker_prefetch_multiplier=1`: as many as run", cannot={"solo": ONE_AT_A_TIME})
def test_no_prefetch(fleet: Fleet, pool: str) -> None:
    most_held(fleet, "prefetch:1", 4)


@feature(
    POOL,
    "`worker_prefetch_multiplier=4`: as the user set it",
    on="wide",
    cannot={"gevent": FULL, "solo": ONE_AT_A_TIME},
)
def test_prefetch(fleet: Fleet, pool: str) -> None:
    most_held(fleet, "prefetch:4", 16)


@feature(POOL, "`--autoscale 4,1`", on="own", cannot={"threads": NO_GROWTH, "solo": NO_GROWTH})
def test_autoscale(fleet: Fleet, pool: str) -> None:
    fleet.start("one", arguments=["--autoscale", "4,1"])
    meets(fleet, "autoscale", 4)


@feature(
    POOL,
    "`--max-tasks-per-child 2`",
    on="own",
    cannot={"threads": NO_CHILDREN, "gevent": NO_CHILDREN, "solo": NO_CHILDREN},
)
def test_max_tasks_per_child(fleet: Fleet, pool: str) -> None:
    fleet.start("one", arguments=["--max-tasks-per-child", "2"], concurrency=1)
    tasks = [fleet.send("add", 1) for _ in range(6)]
    fleet.wait_done(*tasks)
    assert len({run["pid"] for run in fleet.runs("start", *tasks)}) == 3
    assert all(fleet.started(task) == 1 for task in tasks)


@feature(CONTROL, "`pool_grow`, `pool_shrink`", cannot={"threads": NO_GROWTH, "solo": NO_GROWTH})
def test_grow_and_shrink(fleet: Fleet, pool: str) -> None:
    assert "ok" in fleet.control("pool_grow", n=2)
    meets(fleet, "grown", 6)
    most_held(fleet, "grown:held", 6)
    assert "ok" in fleet.control("pool_shrink", n=2)
    most_held(fleet, "shrunk:held", 4)


@feature(CONTROL, "`add_consumer`, `cancel_consumer`")
def test_consumers(fleet: Fleet, pool: str) -> None:
    assert "ok" in fleet.control("add_consumer", queue="extra")
    fleet.wait_done(fleet.send("add", 1, queue="extra"))
    assert "ok" in fleet.control("cancel_consumer", queue="extra")
    fleet.wait_done(fleet.send("add", 2))  # gevent cancels when the read is over that is under way
    left = fleet.send("add", 2, queue="extra")
    fleet.wait_done(fleet.send("add", 3))
    assert (fleet.queued("extra"), fleet.started(left)) == (1, 0)
    assert "ok" in fleet.control("add_consumer", queue="extra")
    fleet.wait_done(left)
    assert "ok" in fleet.control("cancel_consumer", queue="extra")


@feature(CONTROL, "`rate_limit`")
def test_rate_limit(fleet: Fleet, pool: str) -> None:
    assert "ok" in fleet.control("rate_limit", task_name="limited", rate_limit="5/s")
    tasks = [fleet.send("limited") for _ in range(6)]
    fleet.wait_done(*tasks)
    starts = sorted(run["at"] for run in fleet.runs("start", *tasks))
    assert starts[-1] - starts[0] >= 0.9, [later - earlier for earlier, later in pairwise(starts)]
    assert "ok" in fleet.control("rate_limit", task_name="limited", rate_limit="0")
    assert all(fleet.started(task) == 1 for task in tasks)


@feature(CONTROL, "`inspect`: ping, registered, queues, stats")
def test_inspect(fleet: Fleet, pool: str) -> None:
    assert fleet.control("ping") == {"ok": "pong"}
    assert "flaky" in fleet.control("registered")
    names = {queue["name"].partition(".")[0] for queue in fleet.control("active_queues")}
    assert names >= {"celery", "passing", "critical"}
    shown = fleet.control("stats")["throttle"]
    assert (shown["fleet"], shown["membership"], shown["holds"]) == ("default", "living", 0)
    assert shown.get("gate", "take") == fleet.gate
    assert shown["member"].startswith("one#")


@feature(
    CONTROL,
    "`inspect active`, `reserved`: what runs and what waits",
    on="wide",
    cannot={"gevent": FULL, "solo": ONE_AT_A_TIME},
)
def test_inspect_work(fleet: Fleet, pool: str) -> None:
    tasks = [fleet.send("wait_for", "inspect:go") for _ in range(6)]
    fleet.wait(lambda: fleet.held() == 6 and len(fleet.runs("start", *tasks)) == 4, "four that run, two that wait")
    assert {task["id"] for task in fleet.control("active")} == {run["task"] for run in fleet.runs("start", *tasks)}
    assert {task["id"] for task in fleet.control("reserved")} >= set(tasks[4:])
    assert fleet.control("stats")["throttle"]["holds"] == 6
    fleet.open("inspect:go")
    fleet.wait_done(*tasks)
