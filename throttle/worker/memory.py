# pyright: basic
"""After a large task the allocator's free pages go back to the system, where glibc allows it.

glibc keeps what a task has freed, for the next one: a worker that ran one large batch would stay as large as that, and
be what the kernel kills first. So after a task that left its process larger by `trim_mb` than it was after the last
trimming (or than at its first task), `malloc_trim(0)` gives back what is free. What is still in use stays, of course,
and is the new measure: a process that is large for good is not trimmed after each task. Costs a read of /proc a task
(some microseconds), and a few milliseconds where something is given back. Elsewhere (musl, macOS) nothing is done.

In the process that ran the task: a child of the prefork pool, else the worker itself, where other tasks may be running;
malloc_trim is safe beside them. Nothing is kept outside of the process, so there is nothing that a crash could leave.
"""

from __future__ import annotations

import ctypes
import resource
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

STATM = Path("/proc/self/statm")
MIB = 1 << 20


class Measure:
    """How large this process was when there was last nothing to give back."""

    bytes = 0


def task_prerun(task: Any = None, **_: Any) -> None:
    """Note how large the process is before its first task."""
    if Measure.bytes == 0 and _limit(task):
        Measure.bytes = resident()


def task_postrun(task: Any = None, **_: Any) -> None:
    """Give back what a large task has freed. Never raises."""
    limit = _limit(task)
    if limit and resident() > Measure.bytes + limit:
        trim = trimmer()
        if trim is not None:
            trim(0)
        Measure.bytes = resident()


def _limit(task: Any) -> int:
    """Bytes by which a process may have grown; 0 where nothing is trimmed."""
    made = getattr(getattr(task, "app", None), "throttle", None)
    return made.settings.trim_mb * MIB if made is not None else 0


def resident() -> int:
    """Bytes of this process that are in memory; 0 where the system does not tell."""
    try:
        return int(STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


@cache
def trimmer() -> Callable[[int], int] | None:
    """`malloc_trim`, where the C library has it."""
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return found
