# pyright: basic
"""Tells of what the worker does: from what Celery and the driver say anyway to the events of `throttle.events`.

All of it happens in the main process, on prefork too: that a child began a task, how it ended and how long it ran come
back to the pool with its result. What a task does inside is not seen.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import SoftTimeLimitExceeded, Terminated, TimeLimitExceeded, WorkerLostError
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.time import maybe_iso8601

from throttle import events
from throttle.dead import PRIORITY
from throttle.scripts import Empty, Lost, Take

if TYPE_CHECKING:
    from throttle.scripts import TakeAnswer
    from throttle.worker.driver import Driver

SENT = "headroom_sent"
"""Header of a message: when it was sent, in seconds since the epoch, by its producer's clock."""
OTHER = "other"
OUTCOMES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (Retry, "retried"),
    (Reject, "rejected"),
    (Ignore, "ignored"),
    ((TimeLimitExceeded, SoftTimeLimitExceeded), "time limit"),
    ((WorkerLostError, Terminated, SystemExit, KeyboardInterrupt), "lost"),
)


def stamp(headers: dict[str, Any] | None = None, **_: Any) -> None:
    """Note in a message that is about to be sent when that was. Handler of `before_task_publish`."""
    if headers is not None:
        headers[SENT] = round(time.time(), 3)


def answered(answer: TakeAnswer, seconds: float) -> None:
    """Tell what TAKE said."""
    if isinstance(answer, Take):
        word = "message"
    elif isinstance(answer, Empty):
        word = "denied" if answer.denied else "nothing"
    else:
        word = "lost" if isinstance(answer, Lost) else "stale"
    events.emit(events.ASKED, seconds, word)
    if word == "denied":
        events.emit(events.DENIED, "normal")


def took(queue: str, *, critical: bool, deliveries: int) -> None:
    """Tell of a message that goes to Celery."""
    lane = "critical" if critical else "normal"
    events.emit(events.TOOK, queue, lane, deliveries)
    if deliveries:
        events.emit(events.TOOK_AGAIN, queue, lane, deliveries)


class Story:
    """One task, from its start to its end."""

    def __init__(self, driver: Driver, request: Any, number: int) -> None:
        """Of the request of a take or a permit."""
        held = driver.state.held.get(number)
        source = held.take.source.decode(errors="replace") if held is not None else ""
        found = source.removeprefix(driver.operations.keys.prefix).partition(PRIORITY)[0]
        self._queue = found or queue_of(request)
        self._request = request
        self._began_s: float | None = None
        self._over = False

    def began(self) -> None:
        """The pool has accepted it."""
        self._began_s = time.monotonic()
        if events.heard():
            events.emit(events.STARTED, self._request.name, self._queue, self._waited_s())

    def ended(self, outcome: str, seconds: float | None = None) -> None:
        """It is over, once; `seconds` as the process that ran it measured them."""
        if self._over:
            return
        self._over = True
        if seconds is None and self._began_s is not None:
            seconds = time.monotonic() - self._began_s
        events.emit(events.ENDED, self._request.name, self._queue, outcome, seconds)

    def returned(self, result: tuple[Any, Any, float | None]) -> None:
        """The pool has a result. Of one that failed Celery tells `failed` as well."""
        failed_, _, runtime_s = result
        if not failed_:
            self.ended("succeeded", runtime_s)

    def failed(self, exc_info: Any) -> None:
        """It ended with an error, of whatever kind."""
        error = cause(exc_info)
        self.ended(next((word for kind, word in OUTCOMES if isinstance(error, kind)), "failed"))

    def _waited_s(self) -> float | None:
        headers = self._request.message.headers or {}
        sent_s, eta = headers.get(SENT), headers.get("eta")
        if not isinstance(sent_s, int | float):
            return None
        try:
            due = maybe_iso8601(eta) if eta else None
        except (TypeError, ValueError):
            due = None
        due_s = due.timestamp() if due is not None else 0.0
        return time.time() - max(sent_s, due_s)


def cause(exc_info: Any) -> BaseException:
    """The error itself: what comes from a child is wrapped with its traceback."""
    error = exc_info.exception
    return error.exc if isinstance(error, ExceptionWithTraceback) else error


def queue_of(request: Any) -> str:
    """The queue that a message was routed to, if it is one of those that this worker consumes by name."""
    key = request.delivery_info.get("routing_key") or ""
    return key if key in request.app.amqp.queues.consume_from else OTHER
