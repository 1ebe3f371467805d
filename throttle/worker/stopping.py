# pyright: basic
"""How a running task learns that its pod drains, and how it is stopped at the deadline of the drain.

A page of memory that a worker makes before its children are forked holds one byte: serving, draining, or past the
deadline. `self.draining` reads it, in whatever process, without a call to anybody.

At the deadline `DrainDeadline` is raised in the task's own code: a soft time limit by another name, so that what saves
a checkpoint there does so here. Each task's `run` is wrapped (see `guarding`), and it is raised between the beginning
and the end of that, never in what Celery does before and after: a result that is being stored is not torn apart.

========  ==========================================================================================================
pool      how
========  ==========================================================================================================
prefork   SIGUSR1 to the child, as for Celery's soft limit. What waits is interrupted
solo      SIGUSR1 to the main thread, likewise
gevent    thrown into the greenlet when the loop turns next: at once where it waits, never where it does not yield
threads   set for the thread, which raises it when it next runs Python code: what waits in C is not interrupted
========  ==========================================================================================================

A task that was acknowledged before it began (`acks_late=False`) is not stopped: its message is gone. It can ask.
A process that dies at any of these points leaves what a crash leaves: the message is held, and returns.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from billiard import pool as billiard_pool
from billiard.exceptions import SoftTimeLimitExceeded
from celery.app.task import Task
from celery.exceptions import Ignore, Reject

from throttle.worker.waking import nothing

if TYPE_CHECKING:
    from collections.abc import Iterable

SERVING, DRAINING, PAST = 0, 1, 2
SIGNAL = signal.SIGUSR1
"""Of Celery's soft time limit."""
AT_END = "headroom_at_end"
"""Attribute of a task's greenlet: what takes its soft limit away."""


class DrainDeadline(SoftTimeLimitExceeded, Reject, Ignore):
    """The pod's drain has reached its deadline: save what there is to save, and end.

    A task that lets it pass ends here, uncounted, and its message goes back to the head of its queue. It is a
    `SoftTimeLimitExceeded`, a `Reject` that asks for the message to come again, and an `Ignore`, which `autoretry_for`
    leaves alone.
    """

    def __init__(self, reason: str = "the pod drains, and its deadline is over", requeue: bool = True) -> None:  # noqa: FBT001, FBT002 - Reject's
        """Made by the worker."""
        Reject.__init__(self, reason, requeue)

    def __str__(self) -> str:
        """One line."""
        return str(self.reason)


class Notice:
    """The byte that a worker shares with its children. Written by its main process alone."""

    def __init__(self) -> None:
        """Nobody drains."""
        self._page = mmap.mmap(-1, 1)

    @property
    def stands(self) -> int:
        """SERVING, DRAINING or PAST."""
        return self._page[0]

    def post(self, stand: int) -> None:
        """Tell everybody."""
        self._page[0] = stand


notice = Notice()


def draining() -> bool:
    """Whether this pod drains: it takes nothing more, and what runs should come to an end. No round trip."""
    return notice.stands != SERVING


class InMainThread:
    """Tasks of a prefork child, or of solo: one at a time, in the main thread."""

    def __init__(self, previous: Any = None) -> None:
        """Nothing runs. `previous`: the handler that stood there for SIGUSR1."""
        self.inside = False
        self.over = False
        """The task's own code has ended."""
        self.forks = True
        self.previous = previous

    def begin(self) -> None:
        """Celery begins with a task."""
        self.over = False

    def end(self) -> None:
        """The rest is Celery's: no soft limit any more."""
        self.over = True

    def enter(self) -> None:
        """A task's own code begins."""
        self.inside = True

    def leave(self) -> None:
        """It has ended."""
        self.inside = False

    def on_signal(self, number: int, frame: Any) -> None:
        """SIGUSR1: the deadline, or what it was for before."""
        if notice.stands != PAST:
            if callable(self.previous) and not (self.over and self.forks):  # solo's is Celery's for a person who debugs
                self.previous(number, frame)
        elif self.inside:
            self.inside = False  # once: it may take its time to save what it has
            raise DrainDeadline

    def tell(self, children: Iterable[int]) -> None:
        """Interrupt these children; solo: the main thread."""
        if not self.forks:
            signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)
            return
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, SIGNAL)


class InThreads:
    """Tasks of the threads pool."""

    def __init__(self) -> None:
        """Nothing runs."""
        self._lock = threading.Lock()
        self._inside: set[int] = set()

    def begin(self) -> None:
        """Nothing: there is no soft limit."""

    end = begin

    def enter(self) -> None:
        """A task's own code begins in this thread."""
        with self._lock:
            self._inside.add(threading.get_ident())

    def leave(self) -> None:
        """It has ended, and what was not raised in time is raised no more."""
        me = threading.get_ident()
        with self._lock:
            self._inside.discard(me)
            _raise_in(me, None)

    def tell(self, _: Iterable[int]) -> None:
        """Set it for every thread that runs a task."""
        with self._lock:
            for thread in self._inside:
                _raise_in(thread, DrainDeadline)
            self._inside.clear()


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error) if error else None)


class InGreenlets:
    """Tasks of gevent's pool. Its methods run in the loop's thread."""

    def __init__(self) -> None:
        """Nothing runs."""
        from gevent import get_hub, getcurrent  # noqa: PLC0415 - only where it is used

        self._hub, self._current = get_hub(), getcurrent
        self._inside: set[Any] = set()

    def begin(self) -> None:
        """Nothing: each task has a greenlet of its own."""

    def end(self) -> None:
        """The rest is Celery's: no soft limit any more."""
        getattr(self._current(), AT_END, nothing)()

    def enter(self) -> None:
        """A task's own code begins in this greenlet."""
        self._inside.add(self._current())

    def leave(self) -> None:
        """It has ended."""
        self._inside.discard(self._current())

    def tell(self, _: Iterable[int]) -> None:
        """Throw it into each, from the hub."""
        for greenlet in list(self._inside):
            self._hub.loop.run_callback(self._throw, greenlet)

    def _throw(self, greenlet: Any) -> None:
        if greenlet in self._inside:
            self._inside.discard(greenlet)
            greenlet.throw(DrainDeadline())


Way = InMainThread | InThreads | InGreenlets


class Ways:
    """How tasks run in this process."""

    def __init__(self) -> None:
        """As in a child of prefork, until `choose`."""
        self.way: Way = InMainThread()

    def prepare(self) -> None:
        """Before the pool starts: children that it forks hear SIGUSR1 through us from their beginning."""
        notice.post(SERVING)
        if billiard_pool.soft_timeout_sighandler.__name__ != "on_signal":
            way = self.way = InMainThread(billiard_pool.soft_timeout_sighandler)
            billiard_pool.soft_timeout_sighandler = way.on_signal

    def choose(self, pool: str) -> None:
        """Once Celery has installed its handlers: as tasks run on this pool (its module).

        In the main thread; but a worker that is embedded in another program has one of its own, which hears no signals.
        """
        is_embedded = threading.current_thread() is not threading.main_thread()
        if pool.endswith("thread") or (pool.endswith("solo") and is_embedded):
            self.way = InThreads()
        elif pool.endswith("gevent"):
            self.way = InGreenlets()
        elif pool.endswith("solo"):
            way = self.way = InMainThread()
            way.forks = False
            way.previous = signal.signal(SIGNAL, way.on_signal)


ways = Ways()


def install() -> None:
    """Give every task `self.draining`. Safe to repeat."""
    if not hasattr(Task, "draining"):
        Task.draining = property(lambda _: draining(), doc=draining.__doc__)  # pyright: ignore[reportAttributeAccessIssue]
