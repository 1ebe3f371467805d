# pyright: basic
"""Tasks that are to run later, not too late, not too long, or not at all."""

from __future__ import annotations

import time
from inspect import signature
from typing import TYPE_CHECKING, Any

from billiard.pool import Pool
from celery.concurrency.base import apply_target

from tests.features.table import Cannot, feature, mentions
from throttle.worker.limits import GREEN

if TYPE_CHECKING:
    from tests.features.fleet import Fleet

GROUP = "Time"
IN_ITS_POD = (
    "Here what is to run later waits in the pod that fetched it, as in plain Celery, without a slot until it is due."
)
EARLY_S = 0.05
"""What clocks on one machine, read in different processes, may differ by."""


def takes(pool: Any, argument: str) -> bool:
    """Whether what the pool applies a task with has a parameter of this name."""
    applies = Pool.apply_async if mentions(pool, "P.apply_async") else vars(pool).get("on_apply", apply_target)
    return argument in signature(applies).parameters


NO_SIGNALS = Cannot(
    "Celery's pool cannot reach into a running task: it has no `terminate_job`. What has not begun is revoked; what "
    "runs, runs on.",
    lambda pool: not mentions(pool, "terminate_job"),
)
NO_HARD_LIMIT = Cannot(
    "Celery's pool ignores time limits (`on_apply` does not look at them). The log names the task that runs past one; "
    "with `TASK_OVERRUN=exit` its pod ends for it.",
    lambda pool: not takes(pool, "timeout"),
)
NO_SOFT_LIMIT = Cannot(
    "Celery's pool has no soft time limit (`on_apply` does not look at it). The log names the task that runs past it.",
    lambda pool: not takes(pool, "soft_timeout") and pool.__module__ != GREEN,  # there it is Headroom's own
)
DEAF = Cannot(
    "Celery's pool runs a task in the worker's own thread: it hears no command before the task ends.",
    lambda pool: pool(app=None).on_apply is apply_target,
)


def blocked(fleet: Fleet, key: str) -> list[str]:
    """Tasks that occupy the whole pod until `fleet.open(key)`."""
    tasks = [fleet.send("wait_for", key) for _ in range(1 if fleet.pool == "solo" else 4)]
    fleet.wait(lambda: all(fleet.started(task) for task in tasks), "a full pod")
    return tasks


def delay_s(fleet: Fleet, task: str, sent_s: float) -> float:
    """From the sending of a task to its one start."""
    (start,) = fleet.runs("start", task)
    return start["at"] - sent_s


@feature(GROUP, "`countdown`, `eta`: near (Celery's own timer)")
def test_near_eta(fleet: Fleet, pool: str) -> None:
    sent_s = time.time()
    task = fleet.send("add", 1, countdown=0.3)
    fleet.wait_done(task)
    assert delay_s(fleet, task, sent_s) >= 0.3 - EARLY_S
    assert fleet.journal("back") == []


@feature(GROUP, "`countdown`, `eta`: far (parked in Redis, without a slot)", otherwise=IN_ITS_POD)
def test_far_eta(fleet: Fleet, pool: str) -> None:
    sent_s = time.time()
    task = fleet.send("add", 1, countdown=2.0)
    fleet.wait(lambda: fleet.parked() == 1, "the message parked")
    assert (fleet.held(), fleet.operations.counts().busy) == (0, 0)
    fleet.wait_done(task)
    assert 2.0 - EARLY_S <= delay_s(fleet, task, sent_s) < 10.0
    assert [entry["where"] for entry in fleet.journal("back")] == ["park"]


@feature(GROUP, "a far `eta` survives the pod that took it", on="own", otherwise=IN_ITS_POD)
def test_far_eta_survives_its_pod(fleet: Fleet, pool: str) -> None:
    (first,) = fleet.start("one")
    sent_s = time.time()
    task = fleet.send("add", 1, countdown=8.0)
    fleet.wait(lambda: fleet.parked() == 1, "the message parked")
    first.kill()
    fleet.pods.remove(first)
    fleet.start("two")
    fleet.wait(lambda: fleet.started(task), "its start")
    assert delay_s(fleet, task, sent_s) >= 8.0 - EARLY_S
    fleet.wait(lambda: fleet.operations.counts().alive == 1, "the dead pod gone")
    fleet.settle()
    assert fleet.started(task) == 1


@feature(GROUP, "`expires`: in the queue")
def test_expires_in_the_queue(fleet: Fleet, pool: str) -> None:
    blocked(fleet, "expires:go")
    task = fleet.send("add", 1, expires=0.3)
    after = fleet.send("add", 1)
    until_s = time.monotonic() + 0.4
    fleet.wait(lambda: time.monotonic() > until_s, "its time over")
    fleet.open("expires:go")
    fleet.wait_done(after)
    fleet.wait(lambda: fleet.state(task) == "REVOKED", "the task revoked")
    assert fleet.started(task) == 0


@feature(GROUP, "`expires`: while parked", otherwise=IN_ITS_POD)
def test_expires_while_parked(fleet: Fleet, pool: str) -> None:
    task = fleet.send("add", 1, countdown=1.5, expires=0.7)
    fleet.wait(lambda: fleet.parked() == 1, "the message parked")
    fleet.wait(lambda: fleet.state(task) == "REVOKED", "the task revoked")
    assert fleet.started(task) == 0


@feature(GROUP, "`revoke`: queued", cannot={"solo": DEAF})
def test_revoke_waiting(fleet: Fleet, pool: str) -> None:
    others = blocked(fleet, "revoke:go")
    task = fleet.send("add", 1)
    fleet.control("revoke", task_id=task)
    fleet.open("revoke:go")
    fleet.wait_done(*others)
    fleet.settle()
    assert (fleet.state(task), fleet.started(task)) == ("REVOKED", 0)


@feature(GROUP, "`revoke`: parked", otherwise=IN_ITS_POD)
def test_revoke_parked(fleet: Fleet, pool: str) -> None:
    task = fleet.send("add", 1, countdown=2.0)
    fleet.wait(lambda: fleet.parked() == 1, "the message parked")
    fleet.control("revoke", task_id=task)
    fleet.wait(lambda: fleet.parked() == 0, "its time")
    fleet.settle()
    assert (fleet.state(task), fleet.started(task)) == ("REVOKED", 0)


@feature(GROUP, "`revoke(terminate=True)`: running", cannot={"threads": NO_SIGNALS, "solo": NO_SIGNALS})
def test_terminate_running(fleet: Fleet, pool: str) -> None:
    task = fleet.send("wait_for", "nobody opens")
    fleet.wait(lambda: fleet.started(task), "its start")
    fleet.control("revoke", task_id=task, terminate=True, signal="SIGTERM")
    fleet.settle()
    assert fleet.started(task) == 1
    assert fleet.result(fleet.send("add", 1)) == 1
    assert fleet.dead() == []


@feature(GROUP, "hard time limit", cannot={"threads": NO_HARD_LIMIT, "solo": NO_HARD_LIMIT})
def test_hard_time_limit(fleet: Fleet, pool: str) -> None:
    task = fleet.send("wait_for", "nobody opens", time_limit=1)
    assert "TimeLimitExceeded" in fleet.result(task)
    fleet.settle()
    assert fleet.started(task) == 1
    assert fleet.result(fleet.send("add", 1)) == 1


@feature(
    GROUP,
    "soft time limit",
    cannot={"threads": NO_SOFT_LIMIT, "solo": NO_SOFT_LIMIT},
)
def test_soft_time_limit(fleet: Fleet, pool: str) -> None:
    task = fleet.send("patient", soft_time_limit=1)
    assert fleet.result(task) == "ended in time"
    unprepared = fleet.send("work", 15.0, soft_time_limit=1)
    assert "SoftTimeLimitExceeded" in fleet.result(unprepared)
