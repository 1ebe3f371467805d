"""Two loads to try a fleet with: one that only waits, and one that keeps a processor busy."""
# pyright: basic

from __future__ import annotations

import math
import time

from celery import shared_task

LONGEST_S = 24 * 3600.0


@shared_task
def sleep(seconds: float) -> float:
    """Hold a pod for some seconds without using it, as a task that waits for others does.

    Args:
        seconds: 0 to 86,400.

    Returns:
        The seconds it really took.

    Raises:
        ValueError: not a number of seconds in that range.
    """
    wanted = _checked(seconds)
    start = time.monotonic()
    time.sleep(wanted)
    return time.monotonic() - start


@shared_task
def burn(seconds: float) -> int:
    """Keep one processor busy for some seconds, holding the interpreter's lock like bad code would.

    Args:
        seconds: 0 to 86,400, by the clock on the wall.

    Returns:
        How many rounds it made: comparable between runs on the same machine.

    Raises:
        ValueError: not a number of seconds in that range.
    """
    end = time.monotonic() + _checked(seconds)
    rounds, value = 0, 1
    while time.monotonic() < end:
        for _ in range(1000):
            value = (value * 6364136223846793005 + 1442695040888963407) % 2**64
        rounds += 1
    return rounds


def _checked(seconds: float) -> float:
    """Return the argument as a float; it came from a message and may be anything."""
    try:
        wanted = float(seconds)
    except (TypeError, ValueError):
        wanted = math.nan
    if not 0 <= wanted <= LONGEST_S:
        raise ValueError(f"seconds is {seconds!r}: allowed is 0 to {LONGEST_S:g}")
    return wanted
