"""One run's use of its checkpoint: what the task sees of it, and what is done when the store fails or refuses.

No Celery in here: what it needs of the task is given to it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tasks.checkpoints.content import Unusable, pack, unpack
from tasks.checkpoints.protocol import CheckpointError, Gone, StoreAway, Superseded, TooLarge
from tasks.checkpoints.telling import Teller

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tasks.checkpoints.protocol import CheckpointStore, Saved, Slot, Status

logger = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""How long a store that is away is waited for at the start of a run."""
PAUSE_S = 0.5
CLAIMS = 3
"""How often one save opens anew, when ghosts keep getting in between."""
RESPITE_S = 5.0
"""A store that was away is left alone for so long, or for as long as the interval where that is longer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the application allows (its settings `CHECKPOINT_*`)."""

    every_s: float = 2.0
    max_bytes: int = 65536
    patience_s: float = PATIENCE_S


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a checkpoint needs to know of the task that runs."""

    task_id: str
    task: str
    version: int
    delivered_before: bool = False
    """The message was delivered before, or this is a retry: something should be stored."""
    rightful: Callable[[], bool | None] = lambda: None
    """Whether the take is still this run's own; None: nobody can tell."""
    compensate: Callable[[str], object] | None = None
    """The task's own, told why."""
    report: Callable[[float, dict[str, Any]], object] = lambda _progress, _shown: None
    """Shows the progress to people."""
    settle: Callable[[], object] = lambda: None
    """Makes durable what the next save will speak of."""
    status_of: Callable[[BaseException], Status] = lambda _error: "failed"
    ghost: Callable[[str], BaseException] = Superseded
    """The error that ends a run which is not the rightful one."""


class Checkpoint:
    """A context manager around the work of one run. Used by one thread.

    Leaving it after an error saves what was noted last. Leaving it without one saves nothing: the checkpoint is cleared
    when the task has succeeded (`finish`).
    """

    def __init__(
        self, store: CheckpointStore | None, around: Surroundings, limits: Limits, *, required: bool = False
    ) -> None:
        """Nothing is sent. Without a store (a task that is called directly) everything works, and nothing is kept."""
        self.progress = 0.0
        self._store, self._around, self._limits, self._required = store, around, limits, required
        self._teller = Teller(around.task)
        self._slot: Slot | None = None
        self._found: Saved | None = None
        self._away = self._detached = self._too_large = self._unread = False
        self._noted: bytes = b""
        self._unsaved = False
        self._next_s = 0.0

    def __enter__(self) -> Self:
        """Open the checkpoint: waits up to `patience_s` for a store that is away, plus the time of one answer.

        Raises:
            StoreAway, TooLarge: only with `required`.
        """
        if self._store is None:
            return self
        give_up_s = time.monotonic() + self._limits.patience_s
        while True:
            try:
                self._open()
            except StoreAway as error:
                if time.monotonic() + PAUSE_S < give_up_s:
                    time.sleep(PAUSE_S)
                    continue
                self._lost(error, "cannot be read, task %s begins without")
                self._unread = True
            break
        self._found = self._slot.found if self._slot else None
        if self._found is not None:  # what a run leaves that ends before it has loaded or saved anything
            self.progress, self._noted = self._found.progress, self._found.context
        self._wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an error, save what was noted last, and how the run ended; one try, and never another error."""
        if error is None or isinstance(error, Superseded) or self._slot is None or self._detached:
            return
        try:
            if self._unsaved:
                self._around.settle()
            self._teller.saving(lambda: self._save_last(error), len(self._noted))
        except Exception as failure:  # noqa: BLE001 - a store or a `settle` that fails must not hide what ended the run
            logger.warning("the checkpoint of task %s was not saved at its end: %s", self._around.task_id, failure)

    @property
    def unread(self) -> bool:
        """Whether something may be stored that could not be read, because the store was away at the start."""
        return self._unread

    def load(self) -> dict[str, Any] | None:
        """What was saved last, under this task's version; None: start from the beginning. No round trip.

        What is of no use, or should be there and is not, is a reason to call the task's `compensate`.
        """
        if self._store is None:
            return None
        if self._slot is None or self._detached:
            self._teller.looked("away" if self._unread else "none")
            return None
        if self._found is None:
            self._teller.looked("missing" if self._around.delivered_before else "none")
            if self._around.delivered_before:
                self.discard("it has expired, or none was saved")
            return None
        if not self._found.context:
            self._teller.looked("none")
            return None
        try:
            context = unpack(self._found.context, self._around.version)
        except Unusable as error:
            self._teller.looked("unusable")
            self.discard(str(error))
            return None
        self._teller.looked("found")
        logger.info("task %s goes on at %.1f %%", self._around.task_id, 100 * self.progress)
        return context

    def discard(self, reason: str) -> None:
        """Begin anew although something is stored: it is of no use. Calls the task's `compensate` if it has one.

        Raises what `compensate` raises.
        """
        ends = "compensate() is called, then it starts anew" if self._around.compensate else "it starts anew"
        logger.warning("checkpoint of task %s: %s; %s", self._around.task_id, reason, ends)
        if self._around.compensate:
            self._teller.compensating(self._around.compensate, reason)
        self.progress, self._noted = 0.0, b""

    def due(self) -> bool:
        """Whether the interval since the last save is over."""
        return time.monotonic() >= self._next_s

    def save(self, *, progress: float, show: dict[str, Any] | None = None, **context: Any) -> bool:
        """Save now: what the context says has been done, and is durable.

        Args:
            progress: from 0 to 1.
            show: more for people to see beside the progress; not kept.
            context: plain JSON values, given back by `load`.

        Returns:
            Whether it is in the store. False while that is away; it is saved when it is back.

        Raises:
            Superseded (or its kind): this run is a ghost, another one has the work.
            TooLarge, StoreAway: only with `required`.
            ValueError, TypeError: the context is no JSON.
        """
        self._note(progress, context)
        self._around.report(self.progress, show or {})
        return self._save()

    def note(self, *, progress: float, show: dict[str, Any] | None = None, **context: Any) -> bool:
        """As `save`, when the interval is over; until then the context is remembered, for the next save or the end.

        Cheap enough for each step of the work. Before it is saved, `settle` makes durable what it speaks of.
        """
        self._note(progress, context)
        self._around.report(self.progress, show or {})
        return self._save() if self.due() else False

    def tell(self, *, progress: float, show: dict[str, Any] | None = None) -> None:
        """Show progress without anything to go on from."""
        self._around.report(min(1.0, max(0.0, progress)), show or {})

    def finish(self) -> None:
        """Clear the checkpoint: the task has succeeded, or nobody shall go on from here. Nothing is saved any more.

        One try; what is left expires, and one line says so.
        """
        if self._slot is None or self._detached:
            return
        try:
            self._slot.clear()
        except StoreAway as error:
            logger.warning("the checkpoint of task %s is left to expire: %s", self._around.task_id, error)
        self._slot, self._detached = None, True

    def _note(self, progress: float, context: dict[str, Any]) -> None:
        self.progress = min(1.0, max(0.0, float(progress)))
        if self._store is None or self._detached:
            return
        try:
            self._noted = pack(context, self._around.version, self._limits.max_bytes)
        except CheckpointError as error:
            if self._required:
                raise
            if not self._too_large:
                logger.warning("task %s goes on, what was saved before stays: %s", self._around.task_id, error)
            self._too_large = True
            return
        self._unsaved = True

    def _save(self) -> bool:
        if self._store is None or self._detached or not self._unsaved:
            return False
        if self._away and not self.due():
            return False
        self._around.settle()
        try:
            written = self._teller.saving(self._write, len(self._noted))
        except StoreAway as error:
            self._lost(error, "cannot be saved, task %s goes on")
            return False
        if written and self._away:
            logger.info(
                "checkpoints can be saved again: task %s is at %.1f %%", self._around.task_id, 100 * self.progress
            )
        if written:
            self._away = self._unsaved = False
        self._wait()
        return written

    def _save_last(self, error: BaseException) -> bool:
        if self._slot is not None:
            self._slot.save(self._around.status_of(error), self.progress, self._noted)
        return True

    def _write(self) -> bool:
        """Write what was noted, after an OPEN if there was none yet. A refusal is settled with the fleet."""
        for _ in range(CLAIMS):
            if self._slot is None and not self._open():
                return False
            try:
                if self._slot is not None:
                    self._slot.save("running", self.progress, self._noted)
            except (Superseded, Gone) as refusal:
                if not self._claims(refusal):
                    return False
                self._slot = None
            else:
                return True
        return False

    def _claims(self, refusal: CheckpointError) -> bool:
        """Whether to open anew: it is this run's. A ghost ends; where nobody can tell, it goes on without."""
        mine = self._around.rightful()
        if mine is False:
            message = f"{refusal}, and the fleet has given this task to another pod: this run ends"
            logger.warning("%s", message)
            raise self._around.ghost(message)
        if mine is None and isinstance(refusal, Superseded):
            logger.warning("%s; this run goes on and saves nothing more", refusal)
            self._detached = True
            return False
        logger.warning("%s; this run has the task, and opens it anew", refusal)
        return True

    def _open(self) -> bool:
        """Open; False when this task can have no checkpoint. Raises `StoreAway`, and `TooLarge` with `required`."""
        store = self._store
        if store is None:
            return False
        try:
            self._slot = store.open(self._around.task_id, self._around.task)
        except TooLarge as error:
            if self._required:
                raise
            logger.warning("task %s runs without a checkpoint: %s", self._around.task_id, error)
            self._detached = True
            return False
        return True

    def _lost(self, error: StoreAway, what: str) -> None:
        """The store did not answer: one line for an outage. Raises the error with `required`."""
        if self._required:
            raise error
        if not self._away:
            logger.warning(f"checkpoints {what}: %s", self._around.task_id, error)  # noqa: G004 - of two texts above
        self._away = True
        self._wait(RESPITE_S)

    def _wait(self, at_least_s: float = 0.0) -> None:
        self._next_s = time.monotonic() + max(self._limits.every_s, at_least_s)
