"""The server's clock, as this process knows it from answers."""

from __future__ import annotations

import time


class ServerClock:
    """Reads times of the monotonic clock on the server's. Off by half a round trip at most.

    The machine's own clock may be minutes off, and may be set at any moment: it stands in before the first answer only.
    """

    def __init__(self) -> None:
        """Nothing was answered yet."""
        self.known = False
        self._ahead_ms = (time.time() - time.monotonic()) * 1000

    def note(self, now_ms: float, at_s: float) -> None:
        """The server answered that it was `now_ms` in the middle of a round trip, here `at_s`."""
        self._ahead_ms, self.known = now_ms - at_s * 1000, True

    def to_ms(self, at_s: float) -> int:
        """A time of this process on the server's clock."""
        return round(at_s * 1000 + self._ahead_ms)

    def now_ms(self) -> int:
        """The server's time now."""
        return self.to_ms(time.monotonic())
