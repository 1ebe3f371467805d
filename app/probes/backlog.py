"""Whether messages are queued that this pod is free to take: the one question of the probes that costs commands.

Asked by a thread of its own, a few times in READY_STALL_S, and only while the pod has a free place and Redis answers.
A consumer may hang in ways that leave the loop turning (its connection is dead and nobody noticed, its credit is
lost). Then messages stay in the queue although the rule would admit them here, and nothing is taken. `untaken_s` counts
from the first look that found it so, and begins anew with each look that did not: something was taken, no message
waited, the fleet was at its capacity, or no place was free.

Messages that come and go between two looks are not seen, which is right: somebody takes them.

Where this pod is the fleet's doorkeeper, the same thread reads the fleet's numbers, for the metrics.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import redis

from throttle.dead import PRIORITY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from throttle.scripts import Counts, Operations

logger = logging.getLogger(__name__)

LOOKS = 6
"""In READY_STALL_S."""
FLEET_EVERY_S = 5.0
"""The age that the fleet's numbers may have."""


class Lanes(NamedTuple):
    """Full keys of the queues that the pod consumes."""

    critical: Sequence[str]
    normal: Sequence[str]


class Pod(Protocol):
    """What is asked about the worker."""

    operations: Operations

    def taken(self) -> int:
        """A number that changes with each message taken."""
        ...

    def lanes(self) -> Lanes:
        """The queues, none where they are not in the fleet's Redis or nothing is consumed."""
        ...

    def is_free(self) -> bool:
        """Whether it would take a message now: a living member that has a place and waits for nothing else."""
        ...

    def holds(self) -> bool:
        """Whether it counts as busy."""
        ...

    def keeps_door(self) -> bool:
        """Whether it is the fleet's doorkeeper."""
        ...


class Fleet(NamedTuple):
    """The fleet in numbers."""

    counts: Counts
    queued: dict[str, int]
    """Messages by queue, all priorities together."""
    stats: dict[str, int]


def admitted(counts: Counts, *, holds: bool, critical: int, normal: int) -> bool:
    """Whether the rule would let this pod take one of the messages queued in these lanes."""
    others = counts.busy - (1 if holds else 0)
    return critical > 0 or (normal > 0 and others < counts.capacity)


class Backlog:
    """Looks again and again in a daemon thread until the process ends."""

    def __init__(self, pod: Pod, stall_s: float) -> None:
        """Prepare; `start` begins."""
        self._pod = pod
        self._every_s = stall_s / LOOKS
        self._since_s: float | None = None
        self._taken = -1
        self.fleet: Fleet | None = None
        """While this pod is the doorkeeper."""
        self._thread = threading.Thread(target=self._run, name="headroom-backlog", daemon=True)

    def start(self) -> None:
        """Begin; safe to repeat."""
        if not self._thread.is_alive():
            self._thread.start()

    def untaken_s(self, now_s: float) -> float:
        """For how long messages have been queued for this pod in vain."""
        since_s = self._since_s
        return 0.0 if since_s is None else now_s - since_s

    def look(self, now_s: float) -> None:
        """Look once. Raises `redis.RedisError` when nobody answers, and then knows of nothing that waits."""
        since_s, self._since_s = self._since_s, None
        taken, keeps = self._pod.taken(), self._pod.keeps_door()
        moved, self._taken = taken != self._taken, taken
        lanes = self._pod.lanes() if keeps or self._pod.is_free() else Lanes((), ())
        if keeps or any(lanes):
            queued, fleet = self._read(lanes)
            self.fleet = fleet if keeps else None
            critical, normal = (sum(queued[key] for key in lane) for lane in lanes)
            offered = admitted(fleet.counts, holds=self._pod.holds(), critical=critical, normal=normal)
            if offered and not moved and self._pod.is_free():
                self._since_s = now_s if since_s is None else since_s
        else:
            self.fleet = None

    def _read(self, lanes: Lanes) -> tuple[dict[str, int], Fleet]:
        """Lengths by key, and the fleet. Two round trips."""
        operations = self._pod.operations
        keys = [*lanes.critical, *lanes.normal]
        with operations.client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.llen(key)
            pipe.hgetall(operations.keys.stats())
            *lengths, found = pipe.execute(raise_on_error=False)
        lengths_of = {key: n if isinstance(n, int) else 0 for key, n in zip(keys, lengths, strict=True)}
        stats = {_text(k): int(v) for k, v in cast("dict[Any, Any]", found).items()} if isinstance(found, dict) else {}
        queued: dict[str, int] = {}
        for key, length in lengths_of.items():
            name = key.removeprefix(operations.keys.prefix).partition(PRIORITY)[0]
            queued[name] = queued.get(name, 0) + length
        return lengths_of, Fleet(operations.counts(), queued, stats)

    def _run(self) -> None:
        while True:
            keeps = self._pod.keeps_door()
            time.sleep(min(self._every_s, FLEET_EVERY_S) if keeps else self._every_s)
            try:
                self.look(time.monotonic())
            except (redis.RedisError, OSError) as error:  # the heartbeat says so, and `/ready` by it
                self.fleet = None
                logger.debug("backlog: %s", error)
            except Exception:
                logger.exception("looking for a backlog failed; trying on")


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
