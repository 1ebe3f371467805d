"""What a run tells of its checkpoint: the events of `throttle.events`, in the process that runs the task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tasks.checkpoints.protocol import StoreAway
from throttle import events

if TYPE_CHECKING:
    from collections.abc import Callable


class Teller:
    """Of the runs of one task."""

    def __init__(self, task: str) -> None:
        """`task`: its name."""
        self._task = task
        self._looked = False

    def looked(self, outcome: str) -> None:
        """The run looked how far the task is. Told once."""
        if not self._looked:
            self._looked = True
            events.emit(events.CHECKPOINT_LOADED, self._task, outcome)

    def saving(self, save: Callable[[], bool], size_bytes: int) -> bool:
        """Save, and tell what came of it. Returns and raises what `save` does, which is False when it is refused."""
        began_s, outcome = time.monotonic(), "refused"
        try:
            written = save()
            outcome = "saved" if written else "refused"
        except StoreAway:
            outcome = "away"
            raise
        finally:
            events.emit(events.CHECKPOINT_SAVED, self._task, outcome, size_bytes, time.monotonic() - began_s)
        return written

    def compensating(self, compensate: Callable[[str], object], reason: str) -> None:
        """Have the task undo what a run before left half done, and tell how that ended. Raises what it raises."""
        outcome = "failed"
        try:
            compensate(reason)
            outcome = "done"
        finally:
            events.emit(events.CHECKPOINT_COMPENSATED, self._task, outcome, reason)
