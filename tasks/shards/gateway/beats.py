"""The beats of one socket that are not answered yet, in their order. Pure; times are the caller's monotonic seconds.

Discord answers each beat once, on the same socket, after all that it sent before. So an answer says two things: the
socket lives, and what was sent until the beat was heard has come. An answer that is left out makes each later one count
for the beat before its own: less is believed than is true, and at last the socket is given up.
"""

from __future__ import annotations

from collections import deque
from math import inf


class Beats:
    """See the module."""

    def __init__(self) -> None:
        """None was sent."""
        self._sent: deque[float] = deque()

    def sent(self, at_s: float) -> None:
        """One goes out."""
        self._sent.append(at_s)

    def answered(self) -> float | None:
        """One was answered: when it was sent; None: there was none."""
        return self._sent.popleft() if self._sent else None

    def missed_s(self, interval_s: float) -> float:
        """When the oldest has waited for its answer for an interval: then nobody is there. inf: none waits."""
        return self._sent[0] + interval_s if self._sent else inf
