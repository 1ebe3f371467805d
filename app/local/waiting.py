"""Waiting for a condition, never for a length of time.

A fixed pause is either too short on a slow machine or wasted on a fast one. Everything local that
has to wait (a server that answers, a pod that joined, a queue that ran dry) does it with this one
function, and says what it waited for when that did not come.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class WaitError(AssertionError):
    """The condition did not hold in time. An AssertionError, so that a test simply fails."""


def wait_until(
    condition: Callable[[], T],
    timeout_s: float = 10.0,
    *,
    what: str | Callable[[], str] = "",
    every_s: float = 0.01,
) -> T:
    """Call ``condition`` until it answers something true, and return that answer.

    Args:
        condition: asked again and again; what it raises is passed on at once.
        timeout_s: seconds until the wait is given up. The condition is asked at least once.
        what: what is waited for, for the message; a callable is asked only when time ran out.
        every_s: seconds between two questions.

    Raises:
        WaitError: the time ran out; the message names what was waited for.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := condition()):
        if time.monotonic() >= deadline:
            named = what() if callable(what) else what
            named = named or getattr(condition, "__qualname__", repr(condition))
            raise WaitError(f"waited {timeout_s:g} s in vain for: {named}")
        time.sleep(every_s)
    return answer
