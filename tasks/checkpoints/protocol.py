"""What a store of checkpoints is: the protocol that Redis and etcd fulfil, and what can go wrong. See the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from throttle.errors import HeadroomError

if TYPE_CHECKING:
    from collections.abc import Iterator

Status = Literal["running", "stopped", "failed"]
LONGEST_ID = 1024
"""Bytes. A longer task id has no checkpoint."""


class CheckpointError(HeadroomError):
    """A checkpoint could not be read or written."""


class StoreAway(CheckpointError):
    """The store did not answer in time, or refused; whether it did what was asked is unknown."""


class TooLarge(CheckpointError):
    """The content (or the task's id) is larger than allowed; nothing was written."""


class Superseded(CheckpointError):
    """Another run of the same task opened the checkpoint later; nothing was written."""


class Gone(CheckpointError):
    """There is no checkpoint any more: cleared, expired or lost; nothing was written."""


class Saved(NamedTuple):
    """What a store keeps for a task."""

    status: Status
    progress: float
    """0 to 1."""
    last_updated_ms: int
    """By the server's clock; 0 where the store has none (etcd): see `Listed.age_s`."""
    context: bytes
    """What was given to `save`; empty when a run opened it and saved nothing."""


class Listed(NamedTuple):
    """A line of the list."""

    task_id: str
    task: str
    """Name of the task."""
    status: str
    progress: float
    age_s: float
    """Seconds since the last save, by the server's clock; whole ones with etcd."""
    size: int
    """Bytes of content."""


class Slot(Protocol):
    """One task's checkpoint, opened for one run. Used by one thread at a time."""

    @property
    def fence(self) -> int:
        """Of this run."""
        ...

    @property
    def found(self) -> Saved | None:
        """What was there when it was opened; None: nothing. Anything, if others write to the store."""
        ...

    def save(self, status: Status, progress: float, context: bytes) -> None:
        """Write all three and renew the time to live.

        Raises:
            Superseded: another run has opened it since.
            Gone: it was cleared, expired or lost.
            StoreAway: nobody knows whether it was written; the same again does no harm.
        """
        ...

    def clear(self) -> bool:
        """Remove it. False: it is another run's, or gone. Raises `StoreAway`; the same again does no harm."""
        ...


class CheckpointStore(Protocol):
    """A place for checkpoints. Thread-safe; one for each process, made after a fork."""

    def open(self, task_id: str, task: str) -> Slot:
        """Begin a run of a task (`task`: its name). Raises `StoreAway`; the same again gives a higher fence."""
        ...

    def list(self) -> Iterator[Listed]:
        """All checkpoints of the fleet, in no order. Raises `StoreAway`."""
        ...

    def close(self) -> None:
        """Give connections back that are the store's own. A slot must not be used afterwards."""
        ...


def checked_id(task_id: str) -> str:
    """The id, if it can have a checkpoint. Raises `TooLarge`."""
    if not task_id or len(task_id.encode(errors="surrogatepass")) > LONGEST_ID:
        message = f"task id of {len(task_id)} characters: allowed are 1 to {LONGEST_ID} bytes"
        raise TooLarge(message)
    return task_id.encode(errors="backslashreplace").decode()


def read_status(text: str) -> Status:
    """A stored status; what nobody here has written counts as failed."""
    known: dict[str, Status] = {"running": "running", "stopped": "stopped"}
    return known.get(text, "failed")


def read_progress(text: str | float) -> float:
    """A stored progress as a number from 0 to 1; 0 for what is none."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return min(1.0, max(0.0, value)) if value == value else 0.0  # noqa: PLR0124 - nan
