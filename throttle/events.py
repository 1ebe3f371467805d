"""Every event that the library tells of, and every metric that is made from it: one table.

A listener hears of each event in the thread in which it happens, as `listener(event, values)` with the values in the
order of `event.fields`. It must be quick and must not wait: a worker's loop waits for it. What it raises is logged and
ends there, since no metric is worth a task.

    events.subscribe(listener)           events.emit(events.TOOK, queue, lane, deliveries)

With nobody listening an event costs the call and nothing else. Events are told in the process that takes: in prefork
that is the worker's main process, which hears from Celery how long each task of its children ran and how it ended.

Labels are bounded: lanes, answers and outcomes are the words listed here, queues are those that the worker consumes,
task names those that its app registers. No label is made of an id, a pod or anything that a message could choose.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

Kind = Literal["counter", "gauge", "histogram"]

MILLISECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
WORK = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 36000.0)


class Metric(NamedTuple):
    """A time series (one for each combination of its labels) as Prometheus reads it."""

    kind: Kind
    name: str
    text: str
    labels: tuple[str, ...] = ()
    """Fields of the event that tell the series apart."""
    value: str = ""
    """The field that is added or observed; empty counts the event."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, in the unit of its value."""


class Event(NamedTuple):
    """Something that happened in a pod."""

    name: str
    text: str
    fields: tuple[str, ...]
    metrics: tuple[Metric, ...]


ASKED = Event(
    "asked",
    "TAKE was answered, or at the requeue gate a request for a permit.",
    ("seconds", "answer"),
    (
        Metric(
            "histogram", "headroom_take_seconds",
            "From sending TAKE to reading its answer (message, nothing, denied, lost, stale).",
            ("answer",), "seconds", MILLISECONDS,
        ),
    ),
)  # fmt: skip
DENIED = Event(
    "denied",
    "The rule did not admit work of this lane. A pod asks about once a second while it waits.",
    ("lane",),
    (Metric("counter", "headroom_denials_total", "Answers that denied work of a lane.", ("lane",)),),
)
TOOK = Event(
    "took",
    "A message was taken, or let in by the requeue gate, and goes to Celery. `deliveries`: those before that "
    "ended badly, which that gate does not count.",
    ("queue", "lane", "deliveries"),
    (Metric("counter", "headroom_deliveries_total", "Messages taken.", ("queue", "lane")),),
)
TOOK_AGAIN = Event(
    "took again",
    "A message was taken whose earlier deliveries ended badly; told beside `took`.",
    ("queue", "lane", "deliveries"),
    (Metric("counter", "headroom_redeliveries_total", "Messages taken that had been delivered before.",
            ("queue", "lane")),),
)  # fmt: skip
WOKEN = Event(
    "woken",
    "A bell woke this pod and it took a message: from the ring, by the server's clock, to the answer of TAKE.",
    ("seconds",),
    (
        Metric(
            "histogram", "headroom_wakeup_seconds", "From a bell to the message that it was rung for.",
            (), "seconds", MILLISECONDS,
        ),
    ),
)  # fmt: skip
STARTED = Event(
    "started",
    "The pool began a task. `seconds`: since it was sent by a producer with this library, or since it was due, by the "
    "clocks of both machines.",
    ("task", "queue", "seconds"),
    (
        Metric("histogram", "headroom_wait_seconds", "From sending a task, or from when it was due, to its start.",
               ("queue",), "seconds", WORK),
    ),
)  # fmt: skip
ENDED = Event(
    "ended",
    "A task ended here: succeeded, failed, retried, rejected, ignored, lost (its process died), time limit.",
    ("task", "queue", "outcome", "seconds"),
    (
        Metric("counter", "headroom_tasks_total", "Tasks that ended.", ("task", "queue", "outcome")),
        Metric("histogram", "headroom_run_seconds", "How long they ran.", ("task",), "seconds", WORK),
    ),
)
DISOWNED = Event(
    "disowned",
    "A task ended whose message had been given to others: this pod was taken for dead meanwhile.",
    (),
    (Metric("counter", "headroom_disowned_total", "Ends that had no effect."),),
)  # fmt: skip
OVERRAN = Event(
    "overran",
    "A task has run past a limit (soft, hard), and its pool cannot end it.",
    ("kind",),
    (Metric("counter", "headroom_overruns_total", "Tasks that ran past a limit which nothing enforces.", ("kind",)),),
)
BEAT = Event(
    "beat",
    "The pod beat or joined: accepted, refused (it is no member, or another has its name), failed (Redis did not "
    "answer), broken (a fault of this library).",
    ("outcome", "seconds"),
    (
        Metric("counter", "headroom_beats_total", "Beats and joins.", ("outcome",)),
        Metric("histogram", "headroom_beat_seconds", "How long their answers took.", (), "seconds", MILLISECONDS),
    ),
)
EVENTS = (ASKED, DENIED, TOOK, TOOK_AGAIN, WOKEN, STARTED, ENDED, DISOWNED, OVERRAN, BEAT)
"""All of them."""

POD_READINGS = (
    Metric("gauge", "headroom_heartbeat_age_seconds", "Since the last beat that Redis accepted."),
    Metric("gauge", "headroom_loop_stood_seconds", "For how long the main loop has not turned, excuses aside."),
    Metric("gauge", "headroom_places", "Tasks that this pod may run at once."),
    Metric("gauge", "headroom_places_busy", "Of these, taken by a task."),
    Metric("gauge", "headroom_holds", "Messages that this pod holds."),
    Metric("gauge", "headroom_ready", "1 while `/ready` answers 200."),
)
"""Read when somebody asks for the metrics; of this pod alone."""

FLEET_READINGS = (
    Metric("gauge", "headroom_fleet_pods", "Pods of the fleet: living, draining, silent.", ("state",)),
    Metric("gauge", "headroom_fleet_busy_pods", "Living pods that hold something."),
    Metric("gauge", "headroom_fleet_capacity", "Pods that may be busy with normal work."),
    Metric("gauge", "headroom_fleet_waiters", "Pods that are waiting, each for its bell."),
    Metric("gauge", "headroom_fleet_queue_length", "Messages queued where this pod consumes.", ("queue",)),
    Metric("gauge", "headroom_fleet_parked", "Messages that wait until they are due."),
    Metric("gauge", "headroom_fleet_dead_letters", "Messages that wait for a person."),
    Metric("counter", "headroom_fleet_orphans_returned_total", "Messages of dead pods that went back to their queues."),
    Metric("counter", "headroom_fleet_dead_letters_total", "Messages that became dead letters."),
    Metric("counter", "headroom_fleet_requeues_total", "Messages that a denied requeue gate put back."),
    Metric("counter", "headroom_fleet_violations_total", "Tasks that ran without a take."),
)
"""Of the whole fleet, and so only on the pod that is its doorkeeper: a sum over pods stays right."""

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
