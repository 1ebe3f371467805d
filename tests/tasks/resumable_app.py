# pyright: basic
"""The Celery app of the tests of resumable tasks: steps that leave a trace, and every way in which a run may end."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import redis
from celery import Celery

import throttle
from tasks.jobs.resumable import Resumable

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
KEEP_S = 3600

app = Celery("resumable", broker=URL, backend=URL)
app.conf.update(
    headroom_checkpoint_every_s=0.2,
    task_track_started=True,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    **json.loads(os.environ.get("RESUMABLE_CONFIG", "{}")),
)
throttle.install(app)


def leave(task_id: str, what: str, value: object) -> None:
    """A line of a task's trace, which the test reads."""
    with redis.Redis.from_url(URL) as client, client.pipeline(transaction=False) as pipe:
        pipe.rpush(f"trace:{task_id}:{what}", str(value))
        pipe.expire(f"trace:{task_id}:{what}", KEEP_S)
        pipe.execute()


def undo(self: Any, reason: str) -> None:
    """Leave a trace of being asked to undo."""
    leave(self.request.id, "compensated", reason)


@app.task(bind=True, base=Resumable, compensate=undo, max_retries=2)
def steps(self: Any, count: int, seconds: float, ending: str = "") -> int:
    """Take steps, and leave a trace of each; fail or retry at half of them, once, if that is asked for."""
    with self.checkpoint() as checkpoint:
        saved = checkpoint.load() or {"done": 0, "ended": False}
        leave(self.request.id, "begun", saved["done"])
        for step in range(saved["done"], count):
            if step == count // 2 and ending and not saved["ended"]:
                checkpoint.save(progress=step / count, done=step, ended=True)
                if ending == "retry":
                    raise self.retry(countdown=0.1)
                raise ZeroDivisionError
            time.sleep(seconds)
            leave(self.request.id, "steps", step)
            if checkpoint.note(progress=(step + 1) / count, done=step + 1, ended=saved["ended"]):
                leave(self.request.id, "saved", step + 1)
    return count
