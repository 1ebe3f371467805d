# pyright: basic
"""The Celery app that the tests' worker processes run. Its address and its brake come from the environment.

Each task writes what it did into a Redis list, `ran`, as `name id event time`, over a connection of its own, so that a
test sees what really ran and not what a worker believes.
"""

from __future__ import annotations

import functools
import os
import time
from typing import Any

import redis
from celery import Celery
from celery.exceptions import Reject

import throttle

URL = os.environ["REDIS_URL"]

app = Celery("workload", broker=URL)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=int(os.environ.get("WORKLOAD_PREFETCH", "1")),
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    worker_state_db=None,
    task_serializer="json",
)
if os.environ.get("WORKLOAD_CONFIG"):
    app.conf.update(eval(os.environ["WORKLOAD_CONFIG"]))  # noqa: S307 - written by the test itself
throttle.install(app)


@functools.lru_cache(maxsize=None)
def _client(_pid: int) -> redis.Redis:
    return redis.Redis.from_url(os.environ.get("WORKLOAD_RECORDS", URL))


def record(task: Any, event: str) -> None:
    """Write one line down."""
    pod = os.environ["POD_NAME"]
    _client(os.getpid()).rpush(
        "ran", f"{task.name.rpartition('.')[2]} {task.request.id} {event} {time.time():.6f} {pod}"
    )


@app.task(bind=True)
def work(self: Any, seconds: float = 0.0) -> None:
    """Take some time."""
    record(self, "start")
    time.sleep(seconds)
    record(self, "end")


@app.task(bind=True, acks_late=False)
def early(self: Any, seconds: float = 0.0) -> None:
    """Take some time, acknowledged before."""
    record(self, "start")
    time.sleep(seconds)
    record(self, "end")


@app.task(bind=True, max_retries=3)
def retried(self: Any) -> None:
    """Fail once, then succeed."""
    record(self, "start")
    if self.request.retries == 0:
        raise self.retry(countdown=0.1)
    record(self, "end")


@app.task(bind=True)
def rejecting(self: Any, requeue: bool) -> None:  # noqa: FBT001 - a message's argument
    """Reject the first delivery."""
    first = _client(os.getpid()).incr(f"seen:{self.request.id}") == 1
    record(self, "start")
    if first:
        raise Reject("not now", requeue=requeue)
    record(self, "end")


@app.task(bind=True)
def dying(self: Any) -> None:
    """End the process that runs it, each time."""
    record(self, "start")
    os._exit(3)
