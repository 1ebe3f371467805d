# pyright: basic
"""The Celery app of the replays: plain, or with the brake and nothing else changed.

`FAULTS_SYSTEM` says which, `FAULTS_CONFIG` has settings of Celery as JSON.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import redis
from celery import Celery
from celery.exceptions import Reject
from celery.signals import task_prerun

import throttle

OCCUPIED = "occupied"
"""Redis key that is there while `occupy` runs; people keep such a key to limit what runs at once."""

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
BRAKED = os.environ.get("FAULTS_SYSTEM") == "headroom"

app = Celery("faults", broker=URL)
app.conf.update(
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    **json.loads(os.environ.get("FAULTS_CONFIG", "{}")),
)
if BRAKED:
    throttle.install(app)


def is_occupied() -> bool:
    """Whether a gate of one's own would say no. The brake needs none."""
    if BRAKED:
        return False
    with redis.Redis.from_url(URL) as client:
        return bool(client.exists(OCCUPIED))


@app.task
def work(seconds: float = 0.0) -> None:
    """Take some time."""
    time.sleep(seconds)


@app.task
def occupy(seconds: float) -> None:
    """Be all that may run for some time."""
    with redis.Redis.from_url(URL) as client:
        client.set(OCCUPIED, 1)
        time.sleep(seconds)
        client.delete(OCCUPIED)


@app.task
def refused_by_signal() -> None:
    """Run, unless the handler of `task_prerun` can prevent it."""


@task_prerun.connect(sender=refused_by_signal)
def refuse(**_: Any) -> None:
    """Put the task back, as well as a signal's handler can."""
    if is_occupied():
        raise Reject("not now", requeue=True)


@app.task
def refused_by_itself() -> None:
    """Put itself back while something else runs."""
    if is_occupied():
        raise Reject("not now", requeue=True)


@app.task
def deadly() -> None:
    """End the process that runs it, as a broken extension does."""
    os._exit(3)


@app.task
def hungry() -> None:
    """Ask for more memory than there is."""
    raise MemoryError
