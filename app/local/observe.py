"""Looks at a running fleet from outside, through Redis alone, as anybody could.

Nothing here talks to a pod. What the board shows and what the judge weighs is read from the keys of
the fleet, from its queues, and from the list that the tasks' own records go to.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from app.local.recorder import RUNS_KEY
from app.local.replay import Entry, parse
from throttle.keys import Keys
from throttle.scripts import Counts, Operations, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import redis

# kombu keeps a list for each step of priority beside the queue's own.
PRIORITY_LISTS = ("", "\x06\x163", "\x06\x166", "\x06\x169")


@dataclass(frozen=True)
class View:
    """The fleet at one instant (the parts are read one after the other, milliseconds apart)."""

    counts: Counts
    queued: dict[str, int]
    """Queue -> messages in it, all priorities together."""
    held: dict[str, int]
    """Pod -> messages that it holds, for each pod that is a member."""


@dataclass
class Progress:
    """What the tasks' records add up to so far."""

    done: set[str] = field(default_factory=set[str])
    done_by_pod: Counter[str] = field(default_factory=Counter[str])
    running: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Pod -> the record of the start of what it runs."""
    started: dict[str, float] = field(default_factory=dict[str, float])
    """Task -> when it first started, by this machine's clock."""
    records: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def add(self, record: dict[str, Any]) -> None:
        """Count one more record."""
        self.records.append(record)
        task, pod = str(record["task"]), str(record["pod"])
        if record["what"] == "start":
            self.running[pod] = record
            self.started.setdefault(task, float(record["at"]))
            return
        if self.running.get(pod, {}).get("task") == task:
            del self.running[pod]
        if record["state"] in ("SUCCESS", "FAILURE"):
            self.done.add(task)
            self.done_by_pod[pod] += 1


class Observer:
    """Reads one fleet and its queues."""

    def __init__(self, client: redis.Redis, *, fleet: str, rule: Rule, queues: Sequence[str]) -> None:
        """Prepare; nothing is sent yet. ``client`` must answer bytes."""
        self.client = client
        self.keys = Keys(fleet)
        self.queues = tuple(queues)
        self.progress = Progress()
        self._operations = Operations(client, self.keys, rule)

    def look(self) -> View:
        """The fleet now; three round trips."""
        members = [
            member.decode()
            for index in (self.keys.alive(), self.keys.draining())
            for member in cast("list[bytes]", self.client.zrange(index, 0, -1))
        ]
        with self.client.pipeline(transaction=False) as pipe:
            for queue in self.queues:
                for suffix in PRIORITY_LISTS:
                    pipe.llen(queue + suffix)
            for member in members:
                pipe.hlen(self.keys.held(member))
            answers = cast("list[object]", pipe.execute(raise_on_error=False))
        numbers = [answer if isinstance(answer, int) else 0 for answer in answers]  # an error: the key is no list
        steps = len(PRIORITY_LISTS)
        queued = {q: sum(numbers[n * steps : (n + 1) * steps]) for n, q in enumerate(self.queues)}
        held = numbers[len(self.queues) * steps :]
        return View(
            counts=self._operations.counts(),
            queued=queued,
            held={member.rpartition("#")[0]: number for member, number in zip(members, held, strict=True)},
        )

    def read_records(self) -> list[dict[str, Any]]:
        """What the tasks have recorded since the last call; one round trip."""
        raw = cast("list[bytes]", self.client.lrange(RUNS_KEY, len(self.progress.records), -1))
        new = [cast("dict[str, Any]", json.loads(record)) for record in raw]
        for record in new:
            self.progress.add(record)
        return new

    def journal(self) -> list[Entry]:
        """The whole journal of the fleet, oldest first."""
        return parse(cast("list[tuple[bytes, dict[bytes, bytes]]]", self.client.xrange(self.keys.journal())))

    def remaining(self) -> set[str]:
        """Ids of the tasks whose messages still exist: queued, held, parked or dead-lettered."""
        messages: list[bytes] = []
        for queue in self.queues:
            for suffix in PRIORITY_LISTS:
                messages += cast("list[bytes]", self.client.lrange(queue + suffix, 0, -1))
        for key in cast("Iterator[bytes]", self.client.scan_iter(self.keys.held("*"))):
            messages += [message_of(entry) for entry in cast("list[bytes]", self.client.hvals(key.decode()))]
        parked = cast("list[bytes]", self.client.zrange(self.keys.parked(), 0, -1))
        messages += [message_of(entry) for entry in parked]
        dead = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.client.xrange(self.keys.dead()))
        messages += [fields.get(b"raw", b"") for _, fields in dead]
        return {task for task in map(task_of, messages) if task}


def message_of(entry: bytes) -> bytes:
    """The raw message in an entry ``seq deliveries length source+raw``; empty for an empty entry."""
    parts = entry.split(b" ", 3)
    return parts[3][int(parts[2]) :] if len(parts) == 4 else b""  # noqa: PLR2004 - the four parts above


def task_of(message: bytes) -> str:
    """The id of the task in a raw message; empty when it is not one of Celery's."""
    try:
        return str(json.loads(message)["headers"]["id"])
    except (ValueError, KeyError, TypeError):
        return ""
