"""What the pods of the soak run. Each start and each end is recorded, in the task, on a server that nobody harms.

The records are in the form that ``app.local.judge`` reads. A start without an end is a run whose process died in it,
whose pod was frozen for good, or which asked to be run again.

Each process throws its garbage away every few seconds. By itself Python does so when there is much of it, and Celery's
retries leave much (100 MB in a child, without the brake as well): what is to be seen is what a process holds.
"""
# pyright: basic

from __future__ import annotations

import gc
import json
import os
import time
from typing import TYPE_CHECKING, Any

from benchmarks import workload

if TYPE_CHECKING:
    from celery import Celery

POISONED = 86
"""Exit code of a process that a poison task ended."""
COLLECT_S = 3.0
_collected_s = 0.0


def note(task: Any, what: str, **more: Any) -> None:
    """Record the start or the end of a run; one round trip to the records."""
    request = task.request
    entry = {
        "what": what,
        "task": request.id,
        "name": task.name,
        "pod": str(request.hostname).partition("@")[0],
        "pid": os.getpid(),
        "queue": request.delivery_info["routing_key"],
        "take": request.properties["delivery_tag"],
        "attempt": request.retries,
        "at": time.time(),
        **more,
    }
    workload.records().rpush(workload.RUNS, json.dumps(entry))
    if what == "start":
        collect()


def collect() -> None:
    """Throw garbage away, now and then."""
    global _collected_s  # noqa: PLW0603 - of this process, whichever of its threads comes first
    if time.monotonic() - _collected_s > COLLECT_S:
        _collected_s = time.monotonic()
        gc.collect()


def define(made: Celery) -> Celery:
    """Give the application its tasks."""

    @made.task(name="work", bind=True)
    def _work(self: Any, seconds: float) -> None:
        """Take so long."""
        note(self, "start")
        time.sleep(seconds)
        note(self, "end", state="SUCCESS")

    @made.task(name="again", bind=True, max_retries=None)
    def _again(self: Any, seconds: float, times: int, pause_s: float) -> None:
        """Ask to be run again so many times, each after a pause; then work."""
        note(self, "start")
        if self.request.retries < times:
            raise self.retry(countdown=pause_s)
        time.sleep(seconds)
        note(self, "end", state="SUCCESS")

    @made.task(name="fail", bind=True)
    def _fail(self: Any) -> None:
        """Fail, which is an end like another."""
        note(self, "start")
        note(self, "end", state="FAILURE")
        raise ValueError("as it should")

    @made.task(name="poison", bind=True)
    def _poison(self: Any) -> None:
        """End the process, as a task does that needs more memory than its pod has."""
        note(self, "start")
        os._exit(POISONED)

    return made


def __getattr__(name: str) -> Any:
    """Make ``app`` when Celery asks for it, as ``benchmarks.workload`` does."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()["app"] = define(workload.from_environment())
    return made
