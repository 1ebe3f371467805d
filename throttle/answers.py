"""What the operations answer, as values: see `scripts` for the questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Standing = Literal["living", "draining", "lost"]
Where = Literal["head", "tail", "dead"]
Parked = Literal["parked", "due", "not yours"]


class Take(NamedTuple):
    """A message that a member holds."""

    id: int
    """Number of the take, from the process' own counter."""
    seq: int
    """Number of the take in the whole fleet; it rises, so it serves as a fence while Redis keeps its data."""
    deliveries: int
    """How many deliveries of the message ended badly before, since a person requeued it if anybody did; 0 at first."""
    source: bytes
    """Full Redis key of the list that it came from and goes back to."""
    raw: bytes
    """The message as its producer wrote it."""


class Empty(NamedTuple):
    """Nothing to take; the member is registered as waiting."""

    denied: bool
    """Normal work was not admitted."""
    watched: bool = True
    """A doorkeeper watches the queues."""


@dataclass(frozen=True)
class Lost:  # a tuple without fields would equal any other such
    """The member is not living (silent, superseded, draining or gone): nothing was taken."""


@dataclass(frozen=True)
class Stale:
    """A take of this number was made before and is done with: nothing was taken, and nothing will be under it."""


TakeAnswer: TypeAlias = Take | Empty | Lost | Stale


class Joined(NamedTuple):
    """The member belongs to the fleet."""

    epoch: str


class Clash(NamedTuple):
    """Another incarnation of the pod has beaten within one beat."""

    other: str
    beat_ms: int
    """Its last beat, server time. When it rises between two tries, two processes live under one name."""


class Beat(NamedTuple):
    """What a beat found."""

    standing: Standing
    returned: int
    """Messages of dead members that it brought back to their queues."""
    server_ms: int
    """The server's time."""


class Watched(NamedTuple):
    """What the doorkeeper's look found."""

    rung: int
    full: bool
    """No more normal work is admitted."""
    keys: tuple[bytes, ...]
    """The queues it read."""


class Counts(NamedTuple):
    """The fleet in numbers, all of one instant."""

    alive: int
    busy: int
    capacity: int
    draining: int
    silent: int
    waiters: int
    parked: int
    dead: int

    @property
    def reserve(self) -> int:
        """Living pods beyond capacity: only the critical lane may start work there."""
        return max(0, self.alive - self.capacity)
