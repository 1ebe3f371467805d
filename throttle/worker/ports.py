"""What the driver needs of the two things it works between: the channel that takes, and the worker around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from throttle.scripts import Argument, Operations
    from throttle.worker import vocabulary as v


class Line(Protocol):
    """What the driver needs of the channel: its connection, its deliveries and its credit."""

    def send(self, *command: Argument) -> None:
        """Write a command to the connection without waiting for its answer."""
        ...

    def take_command(self, operations: Operations, command: v.SendTake) -> tuple[Argument, ...]:
        """TAKE on the queues that the channel consumes."""
        ...

    def under_way(self, phase: str) -> None:
        """Note what the connection waits for."""
        ...

    def deliver(self, delivery: v.Deliver) -> None:
        """Hand a message to Celery."""
        ...

    def give_credit(self, take_id: int) -> None:
        """Let kombu forget that the message is unacknowledged."""
        ...


class Host(Protocol):
    """What the driver needs of the worker."""

    def wake(self) -> None:
        """Make the loop turn once. From any thread."""
        ...

    def forgotten(self) -> frozenset[int]:
        """Take ids of which Celery knows nothing (any more)."""
        ...

    def stop_worker(self, why: str) -> None:
        """Shut the worker down in order, with an exit code that is not 0."""
        ...
