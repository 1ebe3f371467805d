# pyright: basic
"""What the bootsteps of both gates share: how a Celery consumer lives, wakes up, ends, and tells of its requests.

A step starts after Celery's own `Tasks` step and stops before it. `start` runs at every connection to the broker,
`stop` at every loss of it and once more at the shutdown, `shutdown` when the pool has ended: DRAIN goes out in the last
`stop` (before kombu closes its channel) and LEAVE in `shutdown`.

What a worker's loop has to notice comes to it in two ways. Prefork, threads and solo run Celery's hub, which other
threads wake by `call_soon`. Gevent waits in kombu's own poller: a pipe of ours is registered there.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from celery import bootsteps
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.exceptions import Reject, TimeLimitExceeded
from celery.worker import state as worker_state
from kombu.utils.eventio import READ

from throttle.worker import attempts, limits
from throttle.worker import vocabulary as v
from throttle.worker.beginning import guard_beginning, put_back
from throttle.worker.broker import RETRY_S, answer_s, is_overdue, refusal
from throttle.worker.containment import cold, contain
from throttle.worker.driver import REDIS_ERRORS
from throttle.worker.ends import DRAINED
from throttle.worker.faults import AWAY, shortened
from throttle.worker.pipes import keep_answers_whole
from throttle.worker.shedding import Shedding
from throttle.worker.stopping import DrainDeadline, ways
from throttle.worker.telling import Story, cause
from throttle.worker.waking import Pipe, nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    from throttle.worker.drain import Drain
    from throttle.worker.driver import Driver

logger = logging.getLogger(__name__)


EXIT_REFUSED = 1
ACCEPTANCE_S = 2.0
"""How long a shutdown waits for children to accept what was sent to them; they do in milliseconds."""


class Hosting(Shedding, bootsteps.StartStopStep):
    """The life of a consumer, for whichever gate. A gate adds `start`, `tick`, `forgotten` and `after_end`."""

    requires = ("celery.worker.consumer.tasks:Tasks",)
    label = "Throttle"

    def __init__(self, c: Any, **options: Any) -> None:
        """Stand at the consumer's end; before Celery's strategies remember who handles requests."""
        self.consumer = c
        self.driver: Driver = c.app.throttle.driver
        self.critical = frozenset(c.app.throttle.critical_queues)
        self.pipe = Pipe() if c.hub is None else None
        self.answer_s = answer_s(self.driver.settings)
        self._on_close, c.blueprint.on_close = c.blueprint.on_close, self.on_close
        self._connect, c.connect = c.connect, self.connect
        self._connected_s = -RETRY_S
        self.overruns = limits.Overruns(self, c.app.throttle.time_limits)
        self.drain: Drain = c.app.throttle.drain
        self._settled = False
        super().__init__(c, **options)

    def tick(self) -> None:
        """Look at the state of things, once in each turn of the loop."""

    def forgotten(self) -> frozenset[int]:
        """Takes of which Celery knows nothing (any more)."""
        return frozenset()

    def after_end(self, number: int) -> None:
        """Celery has ended the request of a take (or permit). In the thread that ended it."""

    def is_lost(self, _number: int) -> bool:
        """Whether a take is surely not ours any more, or may not be: its task is not to be begun."""
        return False

    def unfit(self, request: Any, number: int, error: Exception) -> None:
        """The pool does not take the request of a take (or permit), for what it says; `error` tells why."""

    def condemn(self, request: Any, number: int, reason: str, text: str) -> None:  # noqa: ARG002 - for the other gate
        """Have the message become a dead letter when Celery acknowledges or rejects it."""
        self.driver.feed(v.Condemned(number, reason, text))

    def give_back_overrun(self, request: Any, number: int, text: str) -> None:
        """Give back the message of a task that runs past its limit; this process ends right after."""

    # -- the life of a connection

    def settle_in(self) -> None:
        """Be drained by whoever asks; unless tasks run in children, let a process beat, and no task end this one."""
        if not self._settled:
            self._settled = True
            ways.choose(type(self.consumer.pool).__module__)
        self.drain.meet(self)
        if isinstance(self.consumer.pool, PreforkPool):
            keep_answers_whole(self.consumer)
        else:
            contain(self.consumer.pool, self.begins)
            limits.soften(self.consumer.pool)
            self.driver.have_stand_in()

    def send_events_once(self) -> None:
        """Try no event until it gets through, as Celery does with its heartbeat: what does not is sent later.

        The loop would wait for it while Redis is away, and on gevent a shutdown for ever.
        """
        dispatcher = self.consumer.event_dispatcher
        if dispatcher is not None:
            send = dispatcher.send
            dispatcher.send = lambda *args, **options: send(*args, **(options | {"retry": False}))

    def register_with_event_loop(self, _consumer: Any, hub: Any) -> None:
        """Look at the state of things once in each turn of the hub."""
        hub.on_tick.add(self.tick)
        hub.on_tick.add(self.give_up_overdue)
        hub.on_tick.add(self.shed_if_asked)

    def join_poller(self, cycle: Any) -> None:
        """Wake the loop of a worker without hub by our pipe, and look at the state of things in each turn of it."""
        pipe, begin = self.pipe, cycle.on_poll_start
        if pipe is None:
            return

        def on_poll_start() -> None:
            pipe.drain()
            self.tick()
            self.give_up_overdue()
            self.shed_if_asked()
            begin()

        cycle.poller.register(pipe.reading, READ)
        cycle.on_poll_start = on_poll_start

    def connect(self) -> Any:
        """Connect to the broker, once it takes writes, and not in a tight loop.

        A server that was made a replica, cannot save what it holds or refuses us something answers the first thing
        that Celery declares with an error; Celery would begin from the start at once, again and again.
        """
        reason = ""
        while True:
            self._pause(self._connected_s + RETRY_S / 2 - time.monotonic())
            self._connected_s = time.monotonic()
            with contextlib.suppress(*REDIS_ERRORS):  # it is away: Celery waits for it, and says so
                found = refusal(self.driver.operations)
                if found:
                    if found != reason:
                        logger.error("headroom: Redis takes no writes (%s): waiting", found)
                    reason = found
                    continue
            return self._connect()

    def _pause(self, pause_s: float) -> None:
        worker_state.maybe_shutdown()
        if pause_s > 0:
            time.sleep(pause_s)
            worker_state.maybe_shutdown()

    def give_up_overdue(self) -> None:
        """Drop the connection that waits for a message when its answer is overdue; kombu makes another."""
        consumer = self.consumer.task_consumer
        if consumer is not None and is_overdue(consumer.channel, self.answer_s):
            logger.warning("headroom: the answer of Redis is overdue: its connection is given up")
            consumer.channel._in_poll.disconnect()

    def on_close(self) -> None:
        """The worker ends: stop taking, and let the pool accept what is on its way to a child, and us a message to us.

        Celery drops at this point what no child has accepted, although the child has it and runs it: it would be done
        twice, and the child would wait half a minute for somebody to read its answer.
        """
        self.drain.ends()
        self.driver.drain()
        if self.consumer.hub is not None:
            pool = self.consumer.pool
            self._await_acceptance(self.consumer.hub, pool._pool._cache if pool.uses_semaphore else {})
        self.shed_now()
        self._on_close()

    def _await_acceptance(self, hub: Any, jobs: dict[Any, Any]) -> None:
        give_up_s, loop = time.monotonic() + ACCEPTANCE_S, hub.create_loop()
        closed = ValueError  # the poller of a connection that was lost a moment ago
        with contextlib.suppress(StopIteration, closed, *self.consumer.connection_errors):
            while time.monotonic() < give_up_s and (
                self.fetches() or not all(job._accepted for job in list(jobs.values()))
            ):
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
        code = self.drain.over()
        if code is not None and not self.driver.refused:
            self.consumer.controller.exitcode = code

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

    # -- what the driver asks

    def wake(self) -> None:
        """Make the loop turn once. From any thread."""
        if self.pipe is not None:
            self.pipe.wake()
        else:
            self.consumer.hub.call_soon(nothing)

    def stop_worker(self, why: str) -> None:
        """End the worker in order, with an exit code that is not 0."""
        logger.critical("headroom: %s", why)
        worker_state.should_stop = EXIT_REFUSED
        self.wake()

    def places(self) -> bool:
        """Whether a process (thread, greenlet) of the pool is free."""
        return len(worker_state.reserved_requests) < self.consumer.pool.num_processes

    # -- the requests

    def listen(self, request: Any, number: int) -> None:
        """Hear what becomes of the request of a take (or permit)."""
        feed, accepted = self.driver.feed, request.on_accepted
        succeeded, failed, timed_out = request.on_success, request.on_failure, request.on_timeout
        story = Story(self.driver, request, number)

        def on_accepted(*args: Any, **options: Any) -> Any:
            feed(v.Started(number))
            self.overruns.began(request, number)
            story.began()
            return accepted(*args, **options)

        def on_success(result: Any, **options: Any) -> Any:
            if not isinstance(result, tuple):
                return on_failure(result)  # a SystemExit outside prefork: Celery hands over the bare error
            failed_, _, runtime = result
            if runtime is None and not failed_ and (cold() or number in self.given_back):
                return None  # killed at the shutdown, or never begun, which Celery takes for a success: it goes back
            story.returned(result)
            return self._end(number, succeeded, (result,), options)

        def on_failure(exc_info: Any, *args: Any, **options: Any) -> Any:
            if cold() or self.drain.cuts:
                return None  # killed by the shutdown, or by what its signal handler raised in it: it goes back
            story.failed(exc_info)
            error = self._note_failure(request, number, exc_info)
            if isinstance(error, DrainDeadline | MemoryError):  # the latter Celery would raise in this process
                back = self.give_back if isinstance(error, DrainDeadline) else put_back
                return self._end(number, back, (request,), {})
            return self._end(number, failed, (exc_info, *args), options)

        def on_timeout(soft: Any, timeout: Any) -> Any:
            if soft:
                return timed_out(soft, timeout)
            story.ended("time limit")
            feed(v.Failed(number, "time limit", f"TimeLimitExceeded: {timeout} s"))
            return self._end(number, timed_out, (soft, timeout), {})

        limits.limit(request)
        guard_beginning(self, request, number)
        request.on_accepted, request.on_success = on_accepted, on_success
        request.on_failure, request.on_timeout = on_failure, on_timeout

    def _note_failure(self, request: Any, number: int, exc_info: Any) -> BaseException:
        error = cause(exc_info)
        crash = "time limit" if isinstance(error, TimeLimitExceeded) else "crashed"
        rejects = isinstance(error, Reject)
        if isinstance(error, DrainDeadline):
            crash = DRAINED
        elif rejects:
            crash = ""
        text = shortened(exc_info.traceback)
        self.driver.feed(v.Failed(number, crash, text))
        if rejects and isinstance(error.reason, AWAY):
            error.requeue = True  # a retry that the broker did not take: the message itself comes again
        if reason := attempts.reason(request, error):
            self.condemn(request, number, reason, text)
        return error

    def _end(self, number: int, end: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        try:
            return end(*args, **options)
        finally:
            self.overruns.ended(number)
            self.begun.discard(number)
            self.after_end(number)
