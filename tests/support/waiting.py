"""Waiting for conditions: the function that the local fleet uses, under the tests' own roof."""

from __future__ import annotations

import time

from app.local.waiting import WaitError, wait_until

__all__ = ["WaitError", "last", "wait_until"]


def last(seconds: float) -> None:
    """Let trouble last, by the clock: how long it does is what the test is about."""
    until_s = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until_s, seconds + 1, every_s=0.05)
