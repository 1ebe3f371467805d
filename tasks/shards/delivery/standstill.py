"""Whether this process stood still a moment ago: what it reads then happened earlier, like what a RESUME tells.

A frozen pod, or a task that holds Python's lock, leaves what Discord sends in the socket. Read at once afterwards it
all seems to have come at one time, and a row of equal events beside a new target would be matched by times that say
nothing (`overlap`). So it is marked as told late, by a clock that is turned in the same loop. Pure, but for `watch`.
"""

from __future__ import annotations

import asyncio
import time

TURN_S = 0.1
STOOD_S = 0.5
"""A loop that has not turned for so long stood still; one that is merely busy is late by milliseconds."""
CATCH_UP_S = 2.0
"""For so long afterwards what was kept back is read: in this machine, and at the sender, whose window was shut."""


class Standstill:
    """Of one loop. Times are of the monotonic clock."""

    def __init__(self) -> None:
        """It does not stand."""
        self._turned_s = float("inf")
        self._caught_up_s = float("-inf")

    async def watch(self) -> None:
        """Turn, until it is cancelled."""
        while True:
            self.turn(time.monotonic())
            await asyncio.sleep(TURN_S)

    def turn(self, now_s: float) -> None:
        """The loop turns."""
        if self._stands(now_s):
            self._caught_up_s = now_s + CATCH_UP_S
        self._turned_s = now_s

    def is_late(self, now_s: float) -> bool:
        """Whether what is heard now may have come earlier."""
        return now_s < self._caught_up_s or self._stands(now_s)

    def _stands(self, now_s: float) -> bool:
        return now_s - self._turned_s > STOOD_S
