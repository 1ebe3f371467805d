"""What the driver needs of the channel that takes and of the worker around it, and a drain of that worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class Running(NamedTuple):
    """A task that a drain waits for."""

    id: str
    name: str
    child: int
    """Process id of the pool's child that runs it; 0 where it runs in the worker itself."""


class Drained(Protocol):
    """What a drain asks of the worker around it."""

    def running(self) -> Sequence[Running]:
        """Tasks that have begun and not ended. From any thread."""
        ...

    def shed(self) -> None:
        """Give back what was fetched and has not begun. In the loop's thread, or soon by it."""
        ...

    shed_done: bool
    """Whether that was done."""

    def stop_running(self) -> None:
        """Raise `DrainDeadline` in every task that runs."""
        ...

    def abandon(self) -> None:
        """Give back the messages of what still runs, as far as LEAVE does not. From any thread."""
        ...

    def kill(self, *, everything: bool) -> bool:
        """Kill the children that run something; or all. False where tasks run in no children."""
        ...
