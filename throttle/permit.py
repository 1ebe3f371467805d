"""The right to do one piece of work, as `Fleet` gives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from throttle.fleet import Fleet

Lane = Literal["normal", "critical"]


@dataclass(slots=True)
class Permit:
    """The right to do one piece of work. A context manager that releases itself."""

    fleet: Fleet = field(repr=False)
    id: int
    lane: Lane
    counted: bool
    """False: given while Redis was away under `on_redis_error="allow"`; nobody counts it."""

    def release(self) -> bool:
        """Give it back, see `Fleet.release`."""
        return self.fleet.release(self)

    def is_valid(self) -> bool:
        """Whether the fleet still counts it: False once this member was taken for dead. One round trip.

        Raises `redis.RedisError` when Redis fails.
        """
        return self.counted and self.fleet.holds(self)

    def __enter__(self) -> Self:
        """Nothing: the permit is held already."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Release, whatever happened."""
        self.release()
