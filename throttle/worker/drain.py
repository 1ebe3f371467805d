"""How a worker drains, whoever asks for it: `throttle drain` (a preStop hook), SIGTERM, SIGINT, SIGQUIT.

The protocol
============
=============  =======================================================================================================
stands         means
=============  =======================================================================================================
working        it takes
draining       DRAIN was sent: out of the count, no takes, beating for what it runs. What was fetched and not begun is
               back at the heads of its queues. What runs may run until the deadline; tasks see it as `self.draining`
stopping       the deadline is over: `DrainDeadline` was raised in what runs, once. A task that ends by it goes back to
               the head of its queue, uncounted
dry            nothing is held, and the membership has ended, without waiting for a TTL; who is to end has `LINGER_S`
left over      what runs did not end within `THROTTLE_DRAIN_GRACE` after the deadline. It is dry when it ends after all
=============  =======================================================================================================

It goes downwards only, but for the last. A deadline, once set, is only ever brought forward. All times are of this
machine's monotonic clock; the fleet's is not asked.

==============================  ========================================================================================
who                             and then
==============================  ========================================================================================
command                         the worker stays up, dry or with what is left over, until it is signalled
SIGTERM, SIGINT                 it ends: 0 when dry. What is left over is cut off: the children that run it are killed,
                                LEAVE returns its messages, and the exit code is 3. So it is where Redis is away to the
                                last and does not hear of an end: that message comes again
a second SIGTERM                the deadline is now
SIGQUIT, a second SIGINT        Celery's cold shutdown: what runs is cut off. Where that cannot be done (a thread, C
                                code) the process ends all the same `COLD_S` later, after LEAVE; exit code 1
SIGKILL                         what a crash leaves: the fleet returns what was held, within a TTL
==============================  ========================================================================================

Signals come by the file descriptor that Python writes their numbers to, so that they are noticed while the main thread
is inside a task (solo) or a loop stands still. A thread of the operating system waits for them and for the deadline.
It feeds the driver itself, but for gevent, whose locks belong to its loop: there the loop is asked to.

Invariant: no message is acknowledged, dropped or counted by a drain. A process that dies at any point of it leaves what
it would leave otherwise: what it held returns, by LEAVE when that was sent, else by its silence.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from throttle import control, events
from throttle.worker import native
from throttle.worker.control import Server
from throttle.worker.stopping import DRAINING, PAST, notice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from throttle.settings import ThrottleSettings
    from throttle.worker.driver import Driver
    from throttle.worker.ports import Drained, Running

logger = logging.getLogger(__name__)

LEFT_OVER = 3
"""Exit code of a worker that ended although tasks were left over."""
COLD = 1
"""Exit code of a cold shutdown, as Celery's."""
COLD_S = 3.0
"""How long a cold shutdown may take beyond Celery's own `worker_soft_shutdown_timeout`."""
LAST_S, LINGER_S = 2.0, 15.0
"""How long the worker may take to end: once its tasks are cut off; dry, with what an app does then."""
LOOK_S = 0.1
"""How often a drain under way looks whether it is over."""
WAKE = 0
ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}


class Drain:
    """The one drain in the life of a worker process."""

    def __init__(self, driver: Driver, settings: ThrottleSettings, *, term_is_cold: bool, soft_s: float) -> None:
        """Nobody has asked. `term_is_cold`, `soft_s`: Celery's REMAP_SIGTERM and `worker_soft_shutdown_timeout`."""
        self.asked_by = ""
        self.listeners: list[Callable[[], object]] = []
        """Called once when the drain begins, in any thread: what else of this process is to be handed over."""
        self.exit_code: int | None = None
        """What the process is to end with, where that is not Celery's to say."""
        self.cuts = False
        """What still runs is being cut off: nothing that is heard of it counts."""
        self._driver, self._settings = driver, settings
        self._term_is_cold, self._soft_s = term_is_cold, soft_s
        self._host: Drained | None = None
        self._server: Server | None = None
        self._asked_s = self._deadline_s = self._linger_s = float("inf")
        self._cold_s = float("inf")
        self._sent = self._stopped = self._dry = self._left_over = self._ends = self._acting = self._gave_up = False
        self._heard: set[int] = set()
        self._call: Callable[[Callable[[], None]], object] = _here
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)

    # -- the beginning

    def listen(self) -> None:
        """Begin to hear signals and commands. In the main thread. Raises `ConfigurationError` for a port in use."""
        if native.patched():
            from gevent import get_hub, spawn  # noqa: PLC0415 - only where it is used

            loop: Any = get_hub().loop
            self._call = lambda act: loop.run_callback_threadsafe(spawn, act)
        native.start(self._watch)
        self._server = Server(self._settings, self)
        with contextlib.suppress(ValueError):  # not in the main thread: an embedded worker has no signals of its own
            before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
            if before != -1:  # the application's own: a drain begins when the loop notices, see `ends`
                signal.set_wakeup_fd(before)
        os.register_at_fork(after_in_child=_hear_no_signals)

    def publish(self) -> None:
        """Tell commands where this worker is reached, once it has joined under its pod's name."""
        if self._server is not None:
            self._server.publish()

    def meet(self, host: Drained) -> None:
        """Work for this consumer from now on."""
        self._host = host
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._writing, bytes([WAKE]))

    # -- the wishes, from any thread

    def ask(self, cause: str, timeout_s: float | None = None) -> None:
        """Drain. A timeout brings the deadline forward if it can; 0 is none, and None is the setting."""
        timeout_s = self._settings.drain_timeout_s if timeout_s is None else timeout_s
        if timeout_s:
            self._deadline_s = min(self._deadline_s, time.monotonic() + timeout_s)
        if not self.asked_by:
            self.asked_by = cause
            self._asked_s = time.monotonic()
            notice.post(DRAINING)
            running = len(self._host.running()) if self._host else 0
            until = f"for {timeout_s:g} s" if timeout_s else "for as long as they take"
            logger.warning("headroom: %s: takes nothing more; %d tasks run, and may %s", cause, running, until)
            events.emit(events.DRAIN_BEGAN, cause, running)
            for listener in self.listeners:
                listener()
        self._wake()

    def ends(self) -> None:
        """Drain, and end: Celery's loop is over, for whatever reason."""
        self._ends = True
        if not self.asked_by:
            self.ask("shutdown")

    def report(self) -> dict[str, Any]:
        """How it stands, for people and programs; see `throttle.commands.drain`."""
        left_s = self._deadline_s - time.monotonic()
        running = self._host.running() if self._host else ()
        return {
            "fleet": self._settings.fleet,
            "pod": self._settings.pod,
            "member": self._driver.state.member,
            "state": self.stands,
            "asked_by": self.asked_by or None,
            "deadline_s": round(max(0.0, left_s), 1) if left_s != float("inf") else None,
            "held": len(self._driver.state.held),
            "running": [{"id": each.id, "name": each.name} for each in running],
        }

    @property
    def stands(self) -> str:
        """One of the words above."""
        if self._dry:
            return "dry"
        if self._left_over:
            return "left over"
        if self._stopped:
            return "stopping"
        return "draining" if self.asked_by else "working"

    # -- the watch, in a thread of the operating system

    def _watch(self) -> None:
        select = native.original("select", "select")
        while True:
            select([self._reading], [], [], LOOK_S if self.asked_by and not self._is_still else None)
            if select([self._reading], [], [], 0)[0]:
                for number in os.read(self._reading, 4096):
                    self._hear(number)
            if self.asked_by:
                self._call(self._act)
                if time.monotonic() >= self._cut_at_s:
                    self._cut()
                if self._host and self._dry and self._heard & ENDING:
                    self._hurry(self._host)

    @property
    def _is_still(self) -> bool:
        """Whether nothing is left to be done or waited for."""
        return self._dry and not self._ends

    @property
    def _cut_at_s(self) -> float:
        if self._dry or not self._stopped:
            return self._cold_s
        return min(self._cold_s, self._deadline_s + self._settings.drain_grace_s)

    def _hear(self, number: int) -> None:
        again = number in self._heard
        self._heard.add(number)
        is_cold = number == signal.SIGQUIT or (number == signal.SIGINT and again)
        if is_cold or (number == signal.SIGTERM and self._term_is_cold):
            self._ends = True
            self._cold_s = min(self._cold_s, time.monotonic() + (0 if again else self._soft_s) + COLD_S)
            self.exit_code = COLD
            self.ask("cold shutdown", 0)
        elif number in (signal.SIGTERM, signal.SIGINT):
            self._ends = True
            if again:
                self._deadline_s = min(self._deadline_s, time.monotonic())
            self.ask(signal.Signals(number).name)
            self.exit_code = 0 if self.exit_code is None else self.exit_code

    def _act(self) -> None:
        """Do what is due. Where the driver may be fed."""
        if self._acting or self._host is None:
            return
        self._acting = True
        try:
            self._advance(self._host)
        except Exception:
            logger.exception("headroom: the drain goes on")
        finally:
            self._acting = False

    def _advance(self, host: Drained) -> None:
        if not self._sent:
            self._driver.drain()
            self._sent = True
        host.shed()
        if not self._dry and host.shed_done and not self._driver.state.held:
            told = "the fleet is left" if self._driver.leave() else "Redis is away"
            self._dry = True
            events.emit(events.DRAIN_ENDED, "dry", time.monotonic() - self._asked_s)
            logger.info("headroom: drained: nothing is held, and %s", told)
        is_cold = self._cold_s != float("inf")
        if not (self._dry or self._stopped or is_cold) and time.monotonic() >= self._deadline_s:
            self._stopped = True
            notice.post(PAST)
            host.stop_running()
            logger.warning("headroom: the deadline is over: %s told to stop", names(host.running()))

    def _cut(self) -> None:
        """Tell what is left over; a worker that is to end gives it back and ends without it."""
        host = self._host
        if host is None:
            return
        if not self._left_over and not self._dry:
            self._left_over = True
            events.emit(events.DRAIN_ENDED, "left over", time.monotonic() - self._asked_s)
            logger.error("headroom: left over: %s", names(host.running()))
        if not self._ends:
            return
        self.exit_code = self.exit_code or LEFT_OVER
        self.cuts = True
        pause = native.original("time", "sleep")
        has_children = host.kill(everything=False)
        self._call(lambda: self._give_up(host))
        give_up_s = time.monotonic() + LAST_S
        while not self._gave_up and time.monotonic() < give_up_s:
            pause(LOOK_S / 5)
        if has_children:
            pause(LAST_S)  # the process ends meanwhile: nothing is left for its main thread to wait for
            host.kill(everything=True)
        control.withdraw(self._settings)
        logging.shutdown()
        os._exit(self.exit_code)

    def _hurry(self, host: Drained) -> None:
        """End a worker that is done and was signalled, and does not end: it has nothing left to lose."""
        self._linger_s = min(self._linger_s, time.monotonic() + LINGER_S)
        if time.monotonic() >= self._linger_s:
            logger.error("headroom: drained, and not ended %g s later: it is ended\n%s", LINGER_S, native.stacks())
            host.kill(everything=True)
            logging.shutdown()
            os._exit(self.exit_code or 0)

    def _give_up(self, host: Drained) -> None:
        try:
            host.abandon()
            self._driver.leave()
        finally:
            self._gave_up = True

    def over(self) -> int | None:
        """The worker ends, and has left: what its exit code is to be; None is Celery's own."""
        control.withdraw(self._settings)
        untold = sum(held.owed for held in self._driver.state.held.values())
        if untold:
            logger.error("headroom: Redis was not told of the ends of %d tasks: their messages come again", untold)
            self.exit_code = self.exit_code or LEFT_OVER
        return self.exit_code


def names(running: Sequence[Running]) -> str:
    """Tasks in a few words."""
    shown = ", ".join(f"{each.name}[{each.id}]" for each in running[:10])
    return (shown + (f" and {len(running) - 10} more" if len(running) > 10 else "")) or "no task"  # noqa: PLR2004


def _here(act: Callable[[], None]) -> None:
    act()


def _hear_no_signals() -> None:
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)
