"""When a pod asks Discord and votes: when beat says so, and by its own clock when beat does not.

Beat sends a round to every pod each 30 s. One that comes less than 20 s after the last is a duplicate (two beats, a
message that was repeated) and changes nothing. While no round comes, a timer of 30 s and up to a tenth more or less
stands in: it is set anew by each round, so with a beat at work it hardly ever rings.

`VoteRounds` is thread-safe: rounds arrive in the worker's main loop and are waited for in the loop of the shards.
Nothing is kept anywhere else: a pod that is started anew votes at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S = 30.0
DUPLICATE_S = 20.0
JITTER = 0.1
EXCHANGE, ROUTING_KEY = "shard-rounds", "round"
"""Where a round is published, to all who listen."""
TASK = "tasks.shards.round"
"""The name that a round has as a message. It is no task: the main loop of a worker takes it, its pool never sees it."""

Why = Literal["start", "beat", "timer"]


class Numbers(NamedTuple):
    """In seconds; for tests."""

    every_s: float = EVERY_S
    duplicate_s: float = DUPLICATE_S
    jitter: float = JITTER


class VoteRounds:
    """The rounds of one pod. `ask` from any thread; `wait` in one event loop, by one waiter."""

    def __init__(
        self,
        numbers: Numbers | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`clock` is monotonic seconds, `chance` from 0 to 1. The first round is due at once."""
        self._numbers = numbers or Numbers()
        self._clock, self._chance = clock, chance
        self._lock = threading.Lock()
        self._last_s = float("-inf")
        self._due_s = clock()
        self._why: Why | None = None
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def ask(self) -> bool:
        """A round from beat. False when it is a duplicate; it wakes who waits otherwise."""
        with self._lock:
            now_s = self._clock()
            if self._why is not None or now_s - self._last_s < self._numbers.duplicate_s:
                return False
            self._why = "start" if self._last_s == float("-inf") else "beat"
            self._last_s = now_s
            waiter = self._waiter
        if waiter is not None:
            loop, event = waiter
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile, and with it the waiter
                loop.call_soon_threadsafe(event.set)
        return True

    def take(self) -> Why | None:
        """The round that is due now, once; None when none is."""
        with self._lock:
            now_s = self._clock()
            why, self._why = self._why, None
            if why is None:
                if now_s < self._due_s:
                    return None
                why = "start" if self._last_s == float("-inf") else "timer"
                self._last_s = now_s
            spread = self._numbers.jitter * (2 * self._chance() - 1)
            self._due_s = now_s + self._numbers.every_s * (1 + spread)
            return why

    def left_s(self) -> float:
        """Seconds until the timer rings, if beat says nothing before."""
        with self._lock:
            return max(0.0, self._due_s - self._clock())

    async def wait(self) -> Why:
        """Wait for the next round and take it. Cancel it to end."""
        event = asyncio.Event()
        with self._lock:
            self._waiter = (asyncio.get_running_loop(), event)
        try:
            while True:
                event.clear()
                why = self.take()
                if why is not None:
                    return why
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.left_s()):
                        await event.wait()
        finally:
            with self._lock:
                self._waiter = None
