# pyright: basic
"""The consumer's side of a drain: what has not begun goes back, what runs is told, and what does not end is abandoned.

A request begins at one instant, `begins`, in the thread that is about to run it (`beginning` in the main process for
children, the pool's own thread or greenlet otherwise). `shed` decides about the same instant under the same lock: what
has begun is let run, what has not is given back, newest first, so that the order of the queue stands. What comes to its
beginning after the drain was asked for and before `shed` is kept for it: alone it would go back before those after it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from celery.concurrency.prefork import TaskPool as PreforkPool

from throttle.worker import vocabulary as v
from throttle.worker.beginning import put_back
from throttle.worker.ends import DRAINED
from throttle.worker.ports import Running
from throttle.worker.stopping import ways

if TYPE_CHECKING:
    from collections.abc import Sequence

    from throttle.worker.drain import Drain
    from throttle.worker.driver import Driver

logger = logging.getLogger(__name__)


class Shedding:
    """What `drain.Drained` asks, for both gates. A gate adds `known` and, where LEAVE is not enough, `abandon`."""

    consumer: Any
    driver: Driver
    drain: Drain

    def __init__(self, *args: Any, **options: Any) -> None:
        """Nothing has begun."""
        self.begun: set[int] = set()
        """Takes (or permits) whose task is running, or about to."""
        self.given_back: set[int] = set()
        """Those that were given back before."""
        self.shed_done = False
        self._late: dict[int, Any] = {}
        """Requests that were not let begin, and wait for `shed`."""
        self._beginning = threading.Lock()
        super().__init__(*args, **options)

    def known(self) -> dict[int, Any]:
        """Requests by take (or permit), those that Celery has not ended."""
        raise NotImplementedError

    def fetches(self) -> bool:
        """Whether one more message may come: a TAKE is under way, or the machine has not heard yet that it drains."""
        state = self.driver.state
        return state.phase == "take" or not state.drain

    def wake(self) -> None:
        """Make the loop turn once."""
        raise NotImplementedError

    def runs_in_children(self) -> bool:
        """Whether the pool is prefork."""
        return isinstance(self.consumer.pool, PreforkPool)

    # -- the beginning of a task

    def may_begin(self, number: int) -> bool:
        """Whether a request begins now. Once it has, it is not given back; while the pod drains, none begins."""
        with self._beginning:
            if number in self.given_back:
                return False
            if not self.drain.asked_by:
                self.begun.add(number)
                return True
            self.given_back.add(number)
            request = self.known().get(number)
            if request is not None and not self.shed_done:
                self._late[number] = request
                return False
        if request is not None:
            self._give_back(number, request)
        return False

    def begins(self, task_args: Any) -> bool:
        """The same, for what a pool without children is given to run (the task's name, its id, its request)."""
        headers = task_args[2] if len(task_args) > 2 and isinstance(task_args[2], dict) else {}  # noqa: PLR2004 - see above
        found = (headers.get("properties") or {}).get(v.MARK) or {}
        number = found.get("take", found.get("permit"))
        return number is None or self.may_begin(int(number))

    # -- what the drain asks

    def shed(self) -> None:
        """Have the loop do it at its next turn: at once where it waits."""
        if not self.shed_done:
            self.wake()

    def shed_if_asked(self) -> None:
        """In each turn of the loop. A message on its way to us goes back before those that were taken before it."""
        if self.drain.asked_by and not self.fetches():
            self.shed_now()

    def shed_now(self) -> None:
        """Give back what has not begun. In the loop's thread."""
        if self.shed_done:
            return
        self._shed_all()
        with self._beginning:
            self.shed_done = True
        self._shed_all()  # what came to its beginning meanwhile

    def _shed_all(self) -> None:
        for number, request in sorted((self.known() | self._late).items(), reverse=True):
            with self._beginning:
                over = number in self.given_back and self._late.pop(number, None) is None
                if over or number in self.begun or number not in self.driver.state.held:
                    continue
                self.given_back.add(number)
            self._give_back(number, request)

    def _give_back(self, number: int, request: Any) -> None:
        self.driver.feed(v.Failed(number, DRAINED, ""))  # to the head, although its pool may have called it accepted
        logger.info("task %s[%s] has not begun and goes back: the pod drains", request.name, request.id)
        self.give_back(request)
        self.after_end(number)

    def give_back(self, request: Any) -> None:
        """Let Celery forget a request; its message goes back to the head of its queue."""
        put_back(request)

    def after_end(self, number: int) -> None:
        """A request is over."""
        raise NotImplementedError

    def running(self) -> Sequence[Running]:
        """Tasks that have begun and not ended."""
        held, children = self.driver.state.held, self.runs_in_children()
        return [
            Running(request.id, request.name, int(request.worker_pid or 0) if children else 0)
            for number, request in sorted(self.known().items())
            if number in held and held[number].stage != "ending" and number in self.begun
        ]

    def stop_running(self) -> None:
        """Raise `DrainDeadline` in every task that runs and can come again."""
        known = self.known()
        late = [known[number] for number in known.keys() & self.begun if not known[number].acknowledged]
        if late:
            ways.way.tell([request.worker_pid for request in late if request.worker_pid])

    def abandon(self) -> None:
        """Nothing more than LEAVE does: it returns what is held."""

    def kill(self, *, everything: bool) -> bool:
        """Kill children of the pool: those that run something, or all. False: it has none."""
        if not self.runs_in_children():
            return False
        busy = {each.child for each in self.running()} - {0}
        pool = self.consumer.pool._pool
        children = {process.pid for process in list(getattr(pool, "_pool", ()))}
        for child in children if everything else children & busy:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        return True
