"""What events come to in a demonstration: a task that writes down each event that it gets, and when.

Its worker holds no shards and is not killed, so that one event written twice was handed on twice, unless Celery itself
delivered the task again, which the record says. Records stand in a file, where no trouble with Redis reaches them: one
line each, written in one step.
"""
# pyright: basic

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from celery import shared_task

from app.local.discord.book import mark
from app.local.discord.checker import Heard

if TYPE_CHECKING:
    from collections.abc import Iterable

TASK = "app.local.shards.consumer.hear"
QUEUE = "events"
FILE = Path("heard")
"""In the folder in which the consumer's worker was started."""


class Record(NamedTuple):
    """One line."""

    mark: str
    name: str
    at_s: float
    task: str
    again: bool
    """Celery delivered the task before."""


@shared_task(name=TASK, bind=True, ignore_result=True)
def hear(self: Any, name: str, data: dict[str, Any]) -> None:
    """Write an event down."""
    again = bool((self.request.delivery_info or {}).get("redelivered"))
    write(Record(mark(name, data), name, time.monotonic(), str(self.request.id), again))


def write(record: Record, path: Path = FILE) -> None:
    """Append a record."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, json.dumps(record).encode() + b"\n")
    finally:
        os.close(file)


def count(path: Path) -> int:
    """How many records there are."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def read(path: Path) -> list[Heard]:
    """What was heard, in its order; a line that is just being written is not read yet."""
    whole, _, _ = path.read_text().rpartition("\n") if path.exists() else ("", "", "")
    return heard_once(Record(*json.loads(line)) for line in whole.splitlines())


def heard_once(records: Iterable[Record]) -> list[Heard]:
    """Leaves out what Celery delivered again although it was written down."""
    seen: set[str] = set()
    found: list[Heard] = []
    for record in records:
        if not (record.again and record.task in seen):
            found.append(Heard(record.mark, record.name, record.at_s))
        seen.add(record.task)
    return found
