# pyright: basic
"""The bootstep that ties a Celery consumer to the driver of the take. It decides nothing.

How a consumer lives and ends is `hosting`'s; here is what only the take needs: its channel, the requests of its takes,
the messages that nobody can use, and acknowledgements at once.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from celery import signals
from celery.utils.time import maybe_iso8601, maybe_make_aware
from celery.worker import state as worker_state

from throttle.worker import vocabulary as v
from throttle.worker.credit import take_id
from throttle.worker.driver import REDIS_ERRORS
from throttle.worker.faults import told
from throttle.worker.hosting import Hosting
from throttle.worker.take import TakingChannel

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class Brake(Hosting):
    """The consumer's side of the brake."""

    def __init__(self, c: Any, **options: Any) -> None:
        """Stand between the consumer and its requests, before Celery's strategies remember who handles them."""
        self.requests: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._acks_seen: tuple[int, ...] = ()
        self._on_task_request = c.on_task_request
        c.call_soon_ack, c.on_task_request = self.call_soon_ack, self.on_task_request
        for name in ("on_unknown_message", "on_unknown_task", "on_invalid_task", "on_decode_error"):
            setattr(c, name, self.condemning(getattr(c, name), name.removeprefix("on_").replace("_", " ")))
        signals.task_received.connect(self.on_task_received, sender=c)
        super().__init__(c, **options)

    # -- the life of a connection

    def start(self, c: Any) -> None:
        """Take through this connection's channel from now on."""
        channel = c.task_consumer.channel
        if not isinstance(channel, TakingChannel):
            logger.error("broker_transport is %r: this worker is not throttled", c.app.conf.broker_transport)
            return
        kept = self.kept()
        channel.take_with(self.driver, self.critical, self)
        channel.carry_over({str(number): request.message for number, request in kept.items()})
        if self.pipe is not None:
            self.join_poller(channel.connection.cycle)
        self.driver.attach(channel, self, frozenset(kept))
        self.settle_in()
        self.send_events_once()

    def known(self) -> dict[int, Any]:
        """Requests by take."""
        return dict(self.requests.items())

    def kept(self) -> dict[int, Any]:
        """Requests that outlive a lost connection: accepted by the pool, or where Celery cannot take them back."""
        held, flushes = self.driver.state.held, self.consumer.hub is not None and self.consumer.pool.uses_semaphore
        return {
            number: request
            for number, request in list(self.requests.items())
            if number in held
            and (held[number].stage in ("running", "emptied") or (request._apply_result is not None and not flushes))
        }

    # -- what the driver asks

    def forgotten(self) -> frozenset[int]:
        """Takes whose request Celery has dropped, or of which it never made one."""
        return frozenset(number for number in list(self.driver.state.held) if number not in self.requests)

    # -- what the channel asks

    def runs(self, take_id: int) -> bool:
        """Whether the task of a take is with the pool."""
        request = self.requests.get(take_id)
        pool = (worker_state.reserved_requests, worker_state.active_requests)  # Celery clears one at a reconnect
        return request is not None and any(request in requests for requests in pool)

    def dismiss(self, take_id: int) -> None:
        """Let Celery forget the request of a message that cannot be run."""
        request = self.requests.pop(take_id, None)
        if request is not None:
            worker_state.task_ready(request)

    def is_lost(self, number: int) -> bool:
        """Whether this pod was silent for a TTL since it took the message, as far as it knows; then a beat tells.

        One that stands holds what it held. One that was given up is another member from here on, and what the old one
        held went to others; unless Redis lost its data, when this member holds it again.
        """
        driver = self.driver
        if not driver.heartbeat.lease_left_s:
            with contextlib.suppress(*REDIS_ERRORS):
                driver.beat()
        held = driver.state.held.get(number)
        return held is not None and not (driver.heartbeat.lease_left_s and held.owner == driver.state.member)

    def unfit(self, request: Any, number: int, error: Exception) -> None:
        """The pool does not take this request: its message is a dead letter, and nothing else suffers."""
        self.driver.feed(v.Condemned(number, f"unusable: {error!r}"[:200], told(error)))
        request.reject(requeue=False)
        worker_state.task_ready(request)

    def give_back_overrun(self, request: Any, number: int, text: str) -> None:  # noqa: ARG002 - of both gates
        """To the head of its queue, with one delivery counted."""
        self.driver.feed(v.Failed(number, "time limit", text))
        self.driver.feed(v.Rejected(number, requeue=True))

    def due_ms(self, eta: Any) -> int | None:
        """The time in a message's `eta` header, in ms since the epoch; None when it has none."""
        when = maybe_iso8601(eta) if eta else None
        return None if when is None else round(maybe_make_aware(when, self.consumer.app.timezone).timestamp() * 1000)

    # -- what the loop notices

    def tick(self) -> None:
        """Note the ends of early acknowledged tasks, acknowledgements left alone, and a place that became free."""
        state = self.driver.state
        if state.pending_acks and not state.phase:
            if state.pending_acks == self._acks_seen:
                self.driver.feed(v.AcksLeft())
            else:  # this very turn may send a TAKE; else there is another one at once
                self._acks_seen = state.pending_acks
                self.wake()
        for number, held in list(state.held.items()):
            if held.stage == "emptied" and not self.runs(number):
                self.driver.feed(v.Finished(number, follows=True))
        if state.phase and not state.offered and self.places():
            self.driver.feed(v.PlaceFreed())

    def on_task_received(self, request: Any, **_: Any) -> None:
        """Remember the request of a take. What Redis kept until it was due need not pass through Celery's timer."""
        number = take_id(request.message.delivery_tag)
        if number is not None:
            self.requests[number] = request
            due_ms = self.due_ms((request.message.headers or {}).get("eta"))
            if due_ms is not None:  # by the server's clock; Celery's timer goes by this machine's
                left_s = (due_ms - self.driver.clock.now_ms()) / 1000
                request._eta = datetime.now(UTC) + timedelta(seconds=left_s) if left_s > 0 else None

    def on_task_request(self, request: Any) -> None:
        """Hand a request to the pool, and listen to what becomes of it."""
        number = take_id(request.message.delivery_tag)
        if number is not None:
            self.listen(request, number)
        self._on_task_request(request)

    def after_end(self, number: int) -> None:
        """Wake the loop: nothing else does where the message was acknowledged before.

        Celery is done with it: a message that it has neither acknowledged nor rejected is a forgotten one.
        """
        self.requests.pop(number, None)
        held = self.driver.state.held.get(number)
        if held is not None and held.stage == "emptied":
            self.wake()

    def call_soon_ack(self, acknowledge: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Acknowledge at once, in whatever thread: the driver is safe, and the loop may not turn for a while."""
        try:
            acknowledge(*args, **options)
        except Exception:
            logger.exception("acknowledgement failed")
        self.wake()

    def condemning(self, handler: Callable[..., Any], reason: str) -> Callable[..., Any]:
        """A handler of unusable messages whose message becomes a dead letter instead of nothing."""

        def handle(*args: Any, **options: Any) -> Any:
            message = next((a for a in args if hasattr(a, "delivery_tag")), None)
            number = take_id(getattr(message, "delivery_tag", ""))
            if number is not None:
                name = (getattr(message, "headers", None) or {}).get("task", "")
                error = next((a for a in args if isinstance(a, Exception)), None)
                text = told(error) if error is not None else ""
                self.driver.feed(v.Condemned(number, f"{reason} {name}".strip(), text))
            return handler(*args, **options)

        return handle
