"""The Celery application that the measured workers run: the same tasks with and without the brake.

Both variants differ in one call, ``throttle.install``, and in nothing else. What a task did is
written to a second server, the *records*, over a connection of the task's own process: neither the
broker's commands nor the brake's word enter the figures.
"""
# pyright: basic

from __future__ import annotations

import json
import os
import time
from typing import Any

import redis
from celery import Celery
from kombu.entity import Exchange, Queue

import throttle

NORMAL, CRITICAL = "work", "critical"
FLEET = "benchmark"
RUNS = "runs"
"""List in the records: one JSON object for each task that came to its end."""
BEGUN = "begun"
"""List in the records: the id of a ``told`` task, once for each time that it began."""
RELEASE = "release"
"""List in the records: each element ends one ``hold``."""

# Plain Celery as one would run it who does not want to lose tasks.
SAFE = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "worker_prefetch_multiplier": 1,
}
HOUR_S = 3600


def create(
    broker: str,
    *,
    gate: str,
    prefetch: int = 1,
    results: str | None = None,
    journal: int = 0,
    visibility_timeout_s: int = HOUR_S,
) -> Celery:
    """Make the application, for a worker or a producer; nothing is sent.

    Args:
        broker: address of the broker.
        gate: where the brake is, ``take`` or ``requeue``; empty for plain Celery.
        prefetch: ``worker_prefetch_multiplier``.
        results: address of the result back end; None keeps no results.
        journal: entries of the fleet's log of operations.
        visibility_timeout_s: after which kombu restores what a dead worker held, but for the take.
            With less than its hour it also looks every second; by default it does every 100 s.
    """
    restoring: dict[str, Any] = {}
    if gate != "take" and visibility_timeout_s < HOUR_S:
        restoring = {"unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    made = Celery("benchmark", broker=broker, backend=results, set_as_current=False)
    made.conf.update(
        SAFE,
        worker_prefetch_multiplier=prefetch,
        task_queues=[Queue(name, Exchange(name), routing_key=name) for name in (NORMAL, CRITICAL)],
        task_default_queue=NORMAL,
        task_ignore_result=results is None,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"visibility_timeout": visibility_timeout_s, **restoring},
        worker_hijack_root_logger=False,
    )
    if gate:
        throttle.install(made, fleet=FLEET, critical_queues=(CRITICAL,), gate=gate, journal=journal)
    return made


_clients: dict[int, redis.Redis] = {}


def records() -> redis.Redis:
    """The client of the records, one per process: a forked child must not share its parent's."""
    client = _clients.get(os.getpid())
    if client is None:
        _clients.clear()
        client = _clients[os.getpid()] = redis.Redis.from_url(os.environ["BENCH_RECORDS"])
    return client


def record(task: Any, began_s: float) -> None:
    """Write down that a task came to its end, with the times of its first and last line."""
    run = {
        "task": task.request.id,
        "pod": str(task.request.hostname).partition("@")[0],
        "queue": task.request.delivery_info["routing_key"],
        "take": task.request.properties["delivery_tag"],
        "began_s": began_s,
        "ended_s": time.time(),
    }
    records().rpush(RUNS, json.dumps(run))


def define(made: Celery) -> Celery:
    """Give the application its tasks."""

    @made.task(name="nothing")
    def _nothing() -> None:
        """Cost nothing but the way through Celery."""

    @made.task(name="rest", bind=True)
    def _rest(self: Any, seconds: float) -> None:
        """Hold a place for some seconds."""
        began_s = time.time()
        time.sleep(seconds)
        record(self, began_s)

    @made.task(name="told", bind=True)
    def _told(self: Any, seconds: float) -> None:
        """As ``rest``, and writes down that it begins: what is cut off leaves a beginning without an end."""
        began_s = time.time()
        records().rpush(BEGUN, self.request.id)
        time.sleep(seconds)
        record(self, began_s)

    @made.task(name="hold", bind=True)
    def _hold(self: Any) -> None:
        """Hold a place until it is released."""
        began_s = time.time()
        # In short waits: a client gives up an answer that takes longer than its socket's patience.
        while records().blpop([RELEASE], timeout=1) is None:
            pass
        record(self, began_s)

    return made


def from_environment() -> Celery:
    """The worker's application, as ``benchmarks.fleet`` describes it to its processes."""
    return define(
        create(
            os.environ["REDIS_URL"],
            gate=os.environ["BENCH_GATE"],
            prefetch=int(os.environ["BENCH_PREFETCH"]),
            results=os.environ["BENCH_RESULTS"] or None,
            journal=int(os.environ["BENCH_JOURNAL"]),
            visibility_timeout_s=int(os.environ["BENCH_VISIBILITY"]),
        )
    )


def __getattr__(name: str) -> Any:
    """Make ``app`` when Celery asks for it: a producer imports this module without that environment."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()["app"] = from_environment()
    return made
