"""Writes down each start and end of a task in a file, where no trouble with Redis reaches it.

A worker includes this module (``worker -I tests.trouble.recorder``). A line is one append to the file, made in the
task's own process before the task's first line runs and after its last; a kill loses no line of what came before it.
"""

# pyright: basic

from __future__ import annotations

import json
import os
import time
from typing import Any

from celery.signals import task_postrun, task_prerun

VARIABLE = "TROUBLE_RECORDS"


@task_prerun.connect
def record_start(task_id: str, task: Any, **_: Any) -> None:
    """Record that a task starts here."""
    _append({"what": "start", **_describe(task_id, task)})


@task_postrun.connect
def record_end(task_id: str, task: Any, state: str | None = None, **_: Any) -> None:
    """Record that a task ended, with its state."""
    _append({"what": "end", "state": state, **_describe(task_id, task)})


def _describe(task_id: str, task: Any) -> dict[str, Any]:
    request = task.request
    properties = request.properties or {}
    return {
        "task": task_id,
        "name": task.name,
        "pod": str(request.hostname).partition("@")[0],
        "queue": (request.delivery_info or {}).get("routing_key"),
        "take": properties.get("delivery_tag"),
        "at": time.time(),
    }


def _append(record: dict[str, Any]) -> None:
    fd = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(fd, json.dumps(record).encode() + b"\n")
    finally:
        os.close(fd)
