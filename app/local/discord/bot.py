"""What Discord knows of one bot: its token, how many shards it recommends, and the day's identifies.

REST and gateway share it. Thread-safe: a test looks at it and changes it while a server answers.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

DAY_S = 86_400.0


class Bot:
    """One bot. The budget is a day's; a day begins with the first identify after the last one ended."""

    def __init__(
        self,
        token: str = "stand-in-token",  # noqa: S107 - of no real bot
        *,
        shards: int = 1,
        total: int = 1000,
        concurrency: int = 1,
        day_s: float = DAY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Attributes may be changed at any time: `shards`, `concurrency`, `total`, `remaining`."""
        self.token, self.shards, self.total, self.concurrency = token, shards, total, concurrency
        self.remaining = total
        self.token_reset = False
        """Discord has ended all sessions and made the token invalid: the budget was overdrawn."""
        self._day_s, self._clock = day_s, clock
        self._day_ends_s: float | None = None
        self._lock = threading.Lock()

    def knows(self, authorization: str | None) -> bool:
        """Whether a request comes from this bot."""
        return not self.token_reset and authorization == f"Bot {self.token}"

    def identified(self) -> bool:
        """Take one identify off the day's. False, and the token is reset, when there is none."""
        with self._lock:
            self._begin_day()
            if self._day_ends_s is None:
                self._day_ends_s = self._clock() + self._day_s
            if self.remaining <= 0:
                self.token_reset = True
                return False
            self.remaining -= 1
            return True

    def session_start_limit(self) -> dict[str, int]:
        """As `GET /gateway/bot` tells it."""
        with self._lock:
            self._begin_day()
            left_s = 0.0 if self._day_ends_s is None else self._day_ends_s - self._clock()
            return {
                "total": self.total,
                "remaining": self.remaining,
                "reset_after": int(left_s * 1000),
                "max_concurrency": self.concurrency,
            }

    def gateway_bot(self, url: str) -> dict[str, Any]:
        """The answer of `GET /gateway/bot`."""
        return {"url": url, "shards": self.shards, "session_start_limit": self.session_start_limit()}

    def _begin_day(self) -> None:
        if self._day_ends_s is not None and self._clock() >= self._day_ends_s:
            self.remaining, self._day_ends_s = self.total, None
