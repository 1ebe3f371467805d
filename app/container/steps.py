"""What a worker does besides its work when it is a container's first process."""
# pyright: basic

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from billiard import process as billiard_process
from celery import bootsteps

if TYPE_CHECKING:
    from celery import Celery

logger = logging.getLogger(__name__)

PROC = Path("/proc")


class Orphans(bootsteps.StartStopStep):
    """Reaps the processes that the container's first process inherited from dead parents.

    A task may leave a process of its own behind: its pool child is killed, recycled or at its time limit while the
    command that the task ran goes on. That command is then the worker's child, and a zombie when it ends: each keeps
    an entry of the container's process table, and a full table means that no child can be started any more.

    Whose child a zombie was cannot be told afterwards, and to reap one of the pool's or of a task in a thread would
    steal its exit code. So it is left alone while Celery's pool knows it, and otherwise until it was seen in two
    turns: whoever waits for a child of his own has done so by then.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)
    label = "Orphans"
    every_s = 10.0

    def __init__(self, consumer: Any, **options: Any) -> None:
        """Prepare; does nothing in a process that is not the first one, because no orphan comes there."""
        self.enabled = os.getpid() == 1
        self._entry: Any = None
        self._seen: frozenset[int] = frozenset()
        super().__init__(consumer, **options)

    def include_if(self, _consumer: Any) -> bool:
        """Whether this process inherits orphans at all."""
        return self.enabled

    def start(self, c: Any) -> None:
        """Begin at a connection to the broker."""
        self.turn()
        self._entry = c.timer.call_repeatedly(self.every_s, self.turn)

    def stop(self, _consumer: Any) -> None:
        """End when the connection is lost and when the worker ends."""
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None

    def turn(self) -> None:
        """Reap what was a zombie at the last turn already."""
        zombies = zombies_of(os.getpid()) - pool_children()
        for pid in zombies & self._seen:
            reap(pid)
        self._seen = zombies - self._seen


def zombies_of(parent: int) -> frozenset[int]:
    """Children of a process that have ended and that nobody has waited for."""
    found: set[int] = set()
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            state, ppid = state_of(int(entry.name))
            if state == "Z" and ppid == parent:
                found.add(int(entry.name))
    return frozenset(found)


def state_of(pid: int) -> tuple[str, int]:
    """A process' state and its parent's id; `("", 0)` when it is gone."""
    try:
        # The name in parentheses may contain anything, parentheses and spaces included.
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[1])


def pool_children() -> frozenset[int]:
    """The processes of Celery's pool, whose exit codes it wants to see itself."""
    known = tuple(billiard_process._children)  # noqa: SLF001 - its public look also reaps them
    return frozenset(process.pid for process in known if process.pid is not None)


def reap(pid: int) -> None:
    """Let an ended process go. No error when somebody was faster."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
    logger.debug("reaped process %d, which was left behind", pid)


def install(app: Celery) -> None:
    """Add the step to an app's workers."""
    app.steps["consumer"].add(Orphans)  # pyright: ignore[reportOptionalSubscript]
