# pyright: basic
"""The bootstep that ties a Celery consumer to the driver. It decides nothing.

It starts after Celery's own `Tasks` step and stops before it. `start` runs at every connection to the broker, `stop` at
every loss of it and once more at the shutdown, `shutdown` when the pool has ended: DRAIN goes out in the last `stop`
(before kombu closes its channel, which waits for the answer under way) and LEAVE in `shutdown`.

What a worker's loop has to notice comes to it in two ways. Prefork, threads and solo run Celery's hub, which other
threads wake by `call_soon`. Gevent waits in kombu's own poller: a pipe of ours is registered there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from celery import bootsteps, signals
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.exceptions import Reject
from celery.utils.time import maybe_iso8601, maybe_make_aware
from celery.worker import state as worker_state
from kombu.utils.eventio import READ

from throttle.worker import vocabulary as v
from throttle.worker.credit import take_id
from throttle.worker.take import TakingChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    from throttle.worker.driver import Driver

logger = logging.getLogger(__name__)

EXIT_REFUSED = 1
ACCEPTANCE_S = 2.0
"""How long a shutdown waits for children to accept what was sent to them; they do in milliseconds."""


def nothing() -> None:
    """Give the hub something to wake up for."""


class Pipe:
    """Wakes a loop that waits in kombu's poller. From any thread, any number of times."""

    def __init__(self) -> None:
        """Open the pipe."""
        self.reading, self._writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self._writing, False)

    def wake(self) -> None:
        """Make the poller return; a full pipe has done so already."""
        with contextlib.suppress(OSError):
            os.write(self._writing, b".")

    def drain(self) -> None:
        """Take what woke us."""
        with contextlib.suppress(OSError):
            os.read(self.reading, 4096)


def _cold() -> bool:
    """Whether the worker shuts down without waiting for its tasks."""
    return worker_state.should_terminate is not None and worker_state.should_terminate is not False


class Brake(bootsteps.StartStopStep):
    """The consumer's side of the brake."""

    requires = ("celery.worker.consumer.tasks:Tasks",)
    label = "Throttle"

    def __init__(self, c: Any, **options: Any) -> None:
        """Stand between the consumer and its requests, before Celery's strategies remember who handles them."""
        self.consumer = c
        self.driver: Driver = c.app.throttle.driver
        self.critical = frozenset(c.app.throttle.critical_queues)
        self.requests: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.pipe = Pipe() if c.hub is None else None
        self._on_task_request = c.on_task_request
        c.call_soon_ack, c.on_task_request = self.call_soon_ack, self.on_task_request
        for name in ("on_unknown_message", "on_unknown_task", "on_invalid_task", "on_decode_error"):
            setattr(c, name, self.condemning(getattr(c, name), name.removeprefix("on_").replace("_", " ")))
        signals.task_received.connect(self.on_task_received, sender=c)
        self._on_close, c.blueprint.on_close = c.blueprint.on_close, self.on_close
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
            self._join_poller(channel.connection.cycle, self.pipe)
        self.driver.attach(channel, self, frozenset(kept))
        if not isinstance(c.pool, PreforkPool):  # its tasks run in children, and never hold this process' lock
            self.driver.have_stand_in()

    def register_with_event_loop(self, _consumer: Any, hub: Any) -> None:
        """Look at the state of things once in each turn of the hub."""
        hub.on_tick.add(self.tick)

    def on_close(self) -> None:
        """The worker ends: stop taking, and let the pool accept what is on its way to a child.

        Celery drops at this point what no child has accepted, although the child has it and runs it: it would be done
        twice, and the child would wait half a minute for somebody to read its answer.
        """
        self.driver.drain()
        if self.consumer.hub is not None and self.consumer.pool.uses_semaphore:
            self._await_acceptance(self.consumer.hub, self.consumer.pool._pool._cache)
        self._on_close()

    def _await_acceptance(self, hub: Any, jobs: dict[Any, Any]) -> None:
        give_up_s, loop = time.monotonic() + ACCEPTANCE_S, hub.create_loop()
        with contextlib.suppress(StopIteration, *self.consumer.connection_errors):
            while time.monotonic() < give_up_s and not all(job._accepted for job in list(jobs.values())):
                next(loop)

    def stop(self, parent: Any) -> None:
        """Stop taking when the worker ends; a lost connection is not the end."""
        if parent.blueprint.state == bootsteps.RUN:
            self.driver.feed(v.Cut())
        else:
            self.driver.drain()

    def terminate(self, parent: Any) -> None:
        """Stop taking; the pool is about to be killed."""
        self.stop(parent)

    def shutdown(self, _consumer: Any) -> None:
        """Leave the fleet: the pool has ended, and what is still held goes back to the heads of its queues."""
        self.driver.leave()

    def info(self, _consumer: Any) -> dict[str, Any]:
        """What `celery inspect stats` shows."""
        state = self.driver.state
        return {
            "throttle": {
                "fleet": self.driver.settings.fleet,
                "member": state.member,
                "membership": "draining" if state.drain else state.membership,
                "holds": len(state.held),
                "taken": state.next_id - 1,
                "disowned": self.driver.disowned,
            }
        }

    def kept(self) -> dict[int, Any]:
        """Requests that outlive a lost connection: accepted by the pool, or where Celery cannot take them back."""
        held, flushes = self.driver.state.held, self.consumer.hub is not None and self.consumer.pool.uses_semaphore
        return {
            number: request
            for number, request in list(self.requests.items())
            if number in held
            and (held[number].stage in ("running", "emptied") or (request._apply_result is not None and not flushes))
        }

    def _join_poller(self, cycle: Any, pipe: Pipe) -> None:
        begin = cycle.on_poll_start

        def on_poll_start() -> None:
            pipe.drain()
            self.tick()
            begin()

        cycle.poller.register(pipe.reading, READ)
        cycle.on_poll_start = on_poll_start

    # -- what the driver asks

    def wake(self) -> None:
        """Make the loop turn once. From any thread."""
        if self.pipe is not None:
            self.pipe.wake()
        else:
            self.consumer.hub.call_soon(nothing)

    def forgotten(self) -> frozenset[int]:
        """Takes whose request Celery has dropped, or of which it never made one."""
        return frozenset(number for number in list(self.driver.state.held) if number not in self.requests)

    def stop_worker(self, why: str) -> None:
        """End the worker in order, with an exit code that is not 0."""
        logger.critical("headroom: %s", why)
        worker_state.should_stop = EXIT_REFUSED
        self.wake()

    # -- what the channel asks

    def places(self) -> bool:
        """Whether a process (thread, greenlet) of the pool is free."""
        return len(worker_state.reserved_requests) < self.consumer.pool.num_processes

    def runs(self, take_id: int) -> bool:
        """Whether the task of a take is with the pool."""
        request = self.requests.get(take_id)
        return request is not None and request in worker_state.reserved_requests

    def due_ms(self, eta: Any) -> int | None:
        """The time in a message's `eta` header, in ms since the epoch; None when it has none."""
        when = maybe_iso8601(eta) if eta else None
        return None if when is None else round(maybe_make_aware(when, self.consumer.app.timezone).timestamp() * 1000)

    # -- what the loop notices

    def tick(self) -> None:
        """Note the ends of early acknowledged tasks, and a place that became free."""
        state = self.driver.state
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
            if due_ms is not None and due_ms <= self.driver.server_ms():
                request._eta = None

    def on_task_request(self, request: Any) -> None:
        """Hand a request to the pool, and listen to what becomes of it."""
        number = take_id(request.message.delivery_tag)
        if number is not None:
            self._listen(request, number)
        self._on_task_request(request)

    def _listen(self, request: Any, number: int) -> None:
        feed, accepted = self.driver.feed, request.on_accepted
        succeeded, failed, timed_out = request.on_success, request.on_failure, request.on_timeout

        def on_accepted(*args: Any, **options: Any) -> Any:
            feed(v.Started(number))
            return accepted(*args, **options)

        def on_success(result: Any, **options: Any) -> Any:
            failed_, _, runtime = result
            if runtime is None and not failed_ and _cold():
                return None  # a greenlet killed at its shutdown, which Celery takes for a success: LEAVE returns it
            return self._then_wake(number, succeeded, (result,), options)

        def on_failure(exc_info: Any, *args: Any, **options: Any) -> Any:
            error = getattr(exc_info.exception, "exc", exc_info.exception)
            if _cold():
                return None  # killed by the shutdown, or by what its signal handler raised in it: LEAVE returns it
            if not isinstance(error, Reject):
                feed(v.Crashed(number))
            return self._then_wake(number, failed, (exc_info, *args), options)

        def on_timeout(soft: Any, timeout: Any) -> Any:
            if not soft:
                feed(v.Crashed(number))
            return self._then_wake(number, timed_out, (soft, timeout), {})

        request.on_accepted, request.on_success = on_accepted, on_success
        request.on_failure, request.on_timeout = on_failure, on_timeout

    def _then_wake(self, number: int, end: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Let Celery end a request; nothing else wakes the loop where the message was acknowledged before."""
        try:
            return end(*args, **options)
        finally:
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
                self.driver.feed(v.Condemned(number, f"{reason} {name}".strip()))
            return handler(*args, **options)

        return handle
