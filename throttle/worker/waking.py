"""How a worker's loop is woken from other threads; see `hosting`."""

from __future__ import annotations

import contextlib
import os


def nothing() -> None:
    """Give the hub something to wake up for."""


class Pipe:
    """Wakes a loop that waits in kombu's poller. From any thread, any number of times."""

    def __init__(self) -> None:
        """Open the pipe."""
        self.reading, self._writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self._writing, False)

    def wake(self) -> None:
        """Make the poller return; a full pipe has done so already."""
        with contextlib.suppress(OSError):
            os.write(self._writing, b".")

    def drain(self) -> None:
        """Take what woke us."""
        with contextlib.suppress(OSError):
            os.read(self.reading, 4096)
