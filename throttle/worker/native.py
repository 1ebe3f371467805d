"""Threads of the operating system, also where gevent has put greenlets in their place.

What must go on while a task holds the loop (the drain's watch, its control address) runs in one of these. It may use
nothing that gevent has patched, and feeds no driver there: see `drain`.
"""

from __future__ import annotations

import gc
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

current_frames = cast("Callable[[], dict[int, FrameType]]", vars(sys)["_current_frames"])
"""The documented way to the stacks of other threads, by their numbers."""


def original(module: str, name: str) -> Any:
    """A name of the standard library as it was before gevent patched it, if it did."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None:
        return getattr(import_module(module), name)
    return monkey.get_original(module, name)


def patched() -> bool:
    """Whether threads are greenlets in this process."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def start(run: Callable[[], None]) -> None:
    """Run it in a thread of the operating system, which ends with the process."""
    original("_thread", "start_new_thread")(run, ())


def thread_number() -> int:
    """The calling thread, as `current_frames` counts them."""
    return int(original("_thread", "get_ident")())


def stacks() -> str:
    """Where each thread of this process stands, on gevent each greenlet too: many lines, for a person to read."""
    frames = list(current_frames().values())
    if patched():
        from greenlet import greenlet  # noqa: PLC0415 - only where it is used

        found: list[Any] = [each for each in gc.get_objects() if issubclass(type(each), greenlet)]
        frames += [each.gr_frame for each in found if each.gr_frame is not None]
    return "\n".join("".join(traceback.format_stack(frame)) for frame in frames)
