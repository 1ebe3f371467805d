"""Threads of the operating system, also where gevent has put greenlets in their place."""

from __future__ import annotations

import _thread
import sys
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable


def start_thread(function: Callable[[], object]) -> None:
    """Run a function in a thread of its own, which nothing waits for: it ends with the process."""
    start = cast("Callable[..., int]", _original("start_new_thread"))
    start(function, ())


def thread_number() -> int:
    """The calling thread, as `sys._current_frames` counts them."""
    return cast("Callable[[], int]", _original("get_ident"))()


def _original(name: str) -> object:
    if "gevent.monkey" in sys.modules:
        from gevent import monkey  # noqa: PLC0415 - only where it is used already

        return monkey.get_original("_thread", name)
    return getattr(_thread, name)
