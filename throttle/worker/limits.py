# pyright: basic
"""Time limits: which ones a task has, and what guards where a pool cannot interrupt it.

Each of the two limits, soft and hard, is looked for by itself, and the first that says one decides:

1. the message (`apply_async(time_limit=...)`), whoever sent it;
2. the task (`@app.task(time_limit=...)`);
3. the queue that the message was sent to, a retry in the critical lane keeping that of the queue that it came from;
4. the default of `throttle.TimeLimits`;
5. Celery's own `task_time_limit`, `task_soft_time_limit` and `--time-limit`. Celery writes the first two into each task
   and message, so one that is the same as they are counts as nobody's own.

They are put on the request where the worker is about to hand it to the pool, at both gates, so a message of a foreign
producer has them too. A soft limit that is not below the hard one does nothing: the hard one ends the task first.

=======  ==================================================  =========================================================
pool     soft                                                hard
=======  ==================================================  =========================================================
prefork  Celery's: a signal in the child                     Celery's: the child is killed, another takes its place
gevent   `soften`: raised where the greenlet next waits      Celery's: likewise
threads  none: nothing reaches into a running thread         none; `Overruns`
solo     none                                                none; `Overruns`
=======  ==================================================  =========================================================

`Overruns` is a thread of the worker's main process. It says once for each task that it has passed a limit, in the log
and as the event `task-overrun`. With `overrun="exit"`, a task past its hard limit ends its pod:

running ──▶ overrun ──▶ leaving: nothing more is taken; what else runs has `PATIENCE_S` ──▶ back ──▶ exit `EXIT_OVERRUN`

*back* is one script for each overrunning message: to the head of its queue with one delivery counted (or to the dead
letters, when that was its last). The process ends right after it, since its code still runs; what else it holds goes
back uncounted by LEAVE. A crash before *back* leaves what any dead pod leaves: its messages return, one delivery
counted for each. Invariant: a task that ended in time never ends its pod, since what is held no more is not looked at.
At the requeue gate the message goes back by kombu, uncounted. Clock: this process' monotonic one, from the acceptance.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from celery.exceptions import SoftTimeLimitExceeded
from celery.worker import state as worker_state

from throttle import events
from throttle.policy import Limit
from throttle.worker import routes
from throttle.worker.stopping import AT_END

if TYPE_CHECKING:
    from collections.abc import Callable

    from throttle.policy import TimeLimits
    from throttle.worker.hosting import Hosting

logger = logging.getLogger(__name__)

EXIT_OVERRUN = 5
"""Exit code of a pod that ended because a task overran its hard limit."""
PATIENCE_S = 30.0
"""How long such a pod lets its other tasks go on."""
LOOK_S = 0.2
GREEN, CHILDREN = "celery.concurrency.gevent", "celery.concurrency.prefork"


def limits_of(request: Any, limits: TimeLimits, queue: str) -> Any:
    """The hard and the soft limit of a request, in Celery's order; None for none. What is no limit stays as it is."""
    asked = request.time_limits or (None, None)
    if not isinstance(asked, (list, tuple)) or len(asked) != len(Limit._fields):
        return asked  # not Celery's: the pool's last look refuses it, as a dead letter
    hard, soft = asked
    task, conf = request.task, request._app.conf
    ours = limits.of(queue)

    def first(asked: Any, own: Any, common: Any, seconds: float) -> Any:
        said = (value for value in (asked, own) if value and value != common)
        return next(said, None) or seconds or None

    return (
        first(hard, task.time_limit, conf.task_time_limit, ours.hard_s),
        first(soft, task.soft_time_limit, conf.task_soft_time_limit, ours.soft_s),
    )


def limit(request: Any) -> None:
    """Give a request its time limits."""
    request.time_limits = limits_of(request, request._app.throttle.time_limits, routes.queue_of_request(request))


def wanted(app: Any) -> bool:
    """Whether an app has time limits at all."""
    return app.throttle.time_limits.any or any(task.time_limit or task.soft_time_limit for task in app.tasks.values())


def interrupts(pool: Any) -> bool:
    """Whether a pool can end a task at its limit."""
    return type(pool).__module__ in (GREEN, CHILDREN)


def soften(pool: Any) -> None:
    """Give the gevent pool the soft limit that Celery's has not. Safe to repeat; other pools stay as they are."""
    apply = pool.on_apply
    if type(pool).__module__ != GREEN or hasattr(apply, "softens"):
        return

    def on_apply(target: Callable[..., Any], *args: Any, **options: Any) -> Any:
        soft_s = options.get("soft_timeout") or pool.options.get("soft_timeout")
        if soft_s:
            target = _softly(target, float(soft_s), options.get("timeout_callback"))
        return apply(target, *args, **options)

    on_apply.softens = on_apply.contains = True
    pool.on_apply = on_apply


def _softly(target: Callable[..., Any], soft_s: float, tell: Callable[..., Any] | None) -> Callable[..., Any]:
    from gevent import Timeout, getcurrent  # noqa: PLC0415 - only on its pool

    def limited(*args: Any, **options: Any) -> Any:
        timer, passed = Timeout(soft_s, SoftTimeLimitExceeded(soft_s)), []

        def close() -> None:
            """From here on nothing is raised: neither the result nor the acknowledgement is cut in two."""
            if timer.pending:
                passed.append(False)
            timer.close()

        setattr(getcurrent(), AT_END, close)
        timer.start()
        try:
            return target(*args, **options)
        finally:
            close()
            fired = not passed
            if fired and tell is not None:
                tell(True, soft_s)  # noqa: FBT003 - Celery's signature

    return limited


class _Running(NamedTuple):
    request: Any
    queue: str
    limit: Limit
    since_s: float

    def next_s(self, told: set[str]) -> float | None:
        """When the next limit passes that nobody was told of."""
        waits = [at_s for name, at_s in zip(("soft", "hard"), self.limit, strict=True) if at_s and name not in told]
        return self.since_s + min(waits) if waits else None


class Overruns(threading.Thread):
    """Watches tasks that their pool cannot end."""

    def __init__(self, hosting: Hosting, limits: TimeLimits) -> None:
        """Prepare; the first limited task starts the thread."""
        super().__init__(name="headroom-limits", daemon=True)
        self._hosting, self._limits = hosting, limits
        self._changed = threading.Condition()
        self._running: dict[int, _Running] = {}
        self._told: dict[int, set[str]] = {}
        self._begun = False

    def began(self, request: Any, number: int) -> None:
        """A task was accepted. From any thread."""
        hard, soft = (float(value or 0) for value in request.time_limits or (0, 0))
        if interrupts(self._hosting.consumer.pool) or not (hard or soft):
            return
        with self._changed:
            queue = routes.queue_of_request(request)
            self._running[number] = _Running(request, queue, Limit(soft, hard), time.monotonic())
            self._told[number] = set()
            if not self._begun:
                self._begun = True
                self.start()
            self._changed.notify()

    def ended(self, number: int) -> None:
        """A task has ended. From any thread."""
        with self._changed:
            self._running.pop(number, None)
            self._told.pop(number, None)

    def overrunning(self) -> list[int]:
        """Tasks past their hard limit."""
        with self._changed:
            return [number for number, told in self._told.items() if "hard" in told]

    def run(self) -> None:
        """Wait for limits, and act on them."""
        while True:
            with self._changed:
                due = {number: at for number, r in self._running.items() if (at := r.next_s(self._told[number]))}
                now_s = time.monotonic()
                late = [number for number, at_s in due.items() if at_s <= now_s]
                if not late:
                    self._changed.wait(min(due.values()) - now_s if due else None)
                    continue
                found = [(number, self._running[number], self._pass(number, now_s)) for number in late]
            for number, running, name in found:
                if number in self._hosting.driver.state.held:
                    self._tell(running, name)
            if self._limits.overrun == "exit" and self._held_overruns():
                self._leave()

    def _pass(self, number: int, now_s: float) -> str:
        running = self._running[number]
        hard = running.limit.hard_s and running.since_s + running.limit.hard_s <= now_s
        self._told[number] |= {"soft", "hard"} if hard else {"soft"}
        return "hard" if hard else "soft"

    def _held_overruns(self) -> list[int]:
        held = self._hosting.driver.state.held
        return [number for number in self.overrunning() if number in held and held[number].stage != "ending"]

    def _tell(self, running: _Running, name: str) -> None:
        request, seconds = running.request, running.limit.hard_s if name == "hard" else running.limit.soft_s
        leaves = name == "hard" and self._limits.overrun == "exit"
        logger.error(
            "headroom: task %s[%s] of queue %s has run past its %s time limit of %g s, and this pool cannot end it: %s",
            request.name,
            request.id,
            running.queue or "?",
            name,
            seconds,
            "the pod ends" if leaves else "it runs on and keeps its slot",
        )
        events.emit(events.OVERRAN, name)
        try:
            request.send_event("task-overrun", limit=seconds, kind=name)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason to watch no more
            logger.debug("the event of an overrun was not sent: %r", error)

    def _leave(self) -> None:
        """End the pod. Does not return."""
        try:
            self._give_back()
        except Exception:
            logger.exception("the messages of this pod return when its silence is noticed")
        logging.shutdown()
        os._exit(EXIT_OVERRUN)

    def _give_back(self) -> None:
        driver = self._hosting.driver
        worker_state.should_stop = EXIT_OVERRUN
        driver.drain()
        self._hosting.wake()
        give_up_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_s and set(driver.state.held) - set(self._held_overruns()):
            time.sleep(LOOK_S)
        overrunning = self._held_overruns()
        for running, number in [(self._running.get(number), number) for number in overrunning]:
            if running is None:
                continue  # it has ended this very moment
            request, limit_s = running.request, running.limit.hard_s
            text = f"{request.name} ran for longer than {limit_s:g} s, on a pool that cannot end it"
            self._hosting.give_back_overrun(request, number, text)
        driver.leave()
        logger.critical("headroom: the pod ends, its place was held by %d task(s) past their limit", len(overrunning))
