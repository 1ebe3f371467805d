"""Every event that the library tells of, and every metric that is made from it: one table.

A listener hears of each event in the thread in which it happens, as `listener(event, values)` with the values in the
order of `event.fields`. It must be quick and must not wait: a worker's loop waits for it. What it raises is logged and
ends there, since no metric is worth a task.

    events.subscribe(listener)           events.emit(events.TOOK, queue, lane, deliveries)

With nobody listening an event costs the call and nothing else. Events are heard in the process that takes: in prefork
that is the worker's main process, which hears from Celery how long each task of its children ran and how it ended. What
is told in a child (checkpoints) goes through a pipe to the main process (`throttle.worker.relaying`).

The table is in `work` (takes, tasks, beats, drains, checkpoints) and `shards`; what is read at a scrape in `readings`.

Labels are bounded: lanes, answers and outcomes are the words listed here, queues are those that the worker consumes,
task names those that its app registers. No label is made of an id, a pod or anything that a message could choose.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from throttle.events.readings import BOT_READINGS, FLEET_READINGS, POD_READINGS, SHARD_READINGS
from throttle.events.shards import (
    IDENTIFY,
    SHARD_CLAIMED,
    SHARD_FORGOTTEN,
    SHARD_OUTGROWN,
    SHARD_READY,
    SHARD_RELEASED,
    SHARD_ROUND,
    SHARD_SESSION_ENDED,
    SHARD_TARGET,
    SHARD_VOTED,
)
from throttle.events.words import Event, Kind, Metric
from throttle.events.work import (
    ASKED,
    BEAT,
    CHECKPOINT_COMPENSATED,
    CHECKPOINT_LOADED,
    CHECKPOINT_SAVED,
    DENIED,
    DISOWNED,
    DRAIN_BEGAN,
    DRAIN_ENDED,
    ENDED,
    OVERRAN,
    STARTED,
    TOOK,
    TOOK_AGAIN,
    WOKEN,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

EVENTS = (
    ASKED, DENIED, TOOK, TOOK_AGAIN, WOKEN, STARTED, ENDED, DISOWNED, OVERRAN, BEAT,
    DRAIN_BEGAN, DRAIN_ENDED, CHECKPOINT_LOADED, CHECKPOINT_SAVED, CHECKPOINT_COMPENSATED,
    SHARD_TARGET, SHARD_CLAIMED, SHARD_READY, SHARD_RELEASED, SHARD_ROUND, SHARD_VOTED, IDENTIFY,
    SHARD_OUTGROWN, SHARD_FORGOTTEN, SHARD_SESSION_ENDED,
)  # fmt: skip
"""All of them."""

READINGS = (*POD_READINGS, *FLEET_READINGS, *SHARD_READINGS, *BOT_READINGS)
"""All metrics that are read at a scrape."""

_listeners: tuple[Callable[[Event, Sequence[object]], None], ...] = ()


def subscribe(listener: Callable[[Event, Sequence[object]], None]) -> None:
    """Hear of every event of this process from now on. Safe to repeat."""
    global _listeners  # noqa: PLW0603 - one hook for a process, which has one heartbeat too
    if listener not in _listeners:
        _listeners = (*_listeners, listener)


def unsubscribe(listener: Callable[[Event, Sequence[object]], None]) -> None:
    """Hear of nothing more. Safe to repeat."""
    global _listeners  # noqa: PLW0603 - as above
    _listeners = tuple(each for each in _listeners if each != listener)


def relay(listener: Callable[[Event, Sequence[object]], None]) -> None:
    """Have this listener alone hear of the events of this process, which was forked from one that listens."""
    global _listeners  # noqa: PLW0603 - as above
    _listeners = (listener,)


def heard() -> bool:
    """Whether anybody listens: for values that cost something to find out."""
    return bool(_listeners)


def emit(event: Event, *values: object) -> None:
    """Tell of an event, its values in the order of `event.fields`. Never raises."""
    for listener in _listeners:
        try:
            listener(event, values)
        except Exception:
            logger.exception("a listener failed at the event %s", event.name)


__all__ = [
    "ASKED",
    "BEAT",
    "BOT_READINGS",
    "CHECKPOINT_COMPENSATED",
    "CHECKPOINT_LOADED",
    "CHECKPOINT_SAVED",
    "DENIED",
    "DISOWNED",
    "DRAIN_BEGAN",
    "DRAIN_ENDED",
    "ENDED",
    "EVENTS",
    "FLEET_READINGS",
    "IDENTIFY",
    "OVERRAN",
    "POD_READINGS",
    "READINGS",
    "SHARD_CLAIMED",
    "SHARD_FORGOTTEN",
    "SHARD_OUTGROWN",
    "SHARD_READINGS",
    "SHARD_READY",
    "SHARD_RELEASED",
    "SHARD_ROUND",
    "SHARD_SESSION_ENDED",
    "SHARD_TARGET",
    "SHARD_VOTED",
    "STARTED",
    "TOOK",
    "TOOK_AGAIN",
    "WOKEN",
    "Event",
    "Kind",
    "Metric",
    "emit",
    "heard",
    "relay",
    "subscribe",
    "unsubscribe",
]
