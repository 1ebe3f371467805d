"""What makes messages for consumers, as the delivery sees it. Which message that is, it does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tasks.shards.gateway.session import Event


class Written(NamedTuple):
    """An event as a message."""

    queue: str
    """Key of the queue's list in Redis."""
    message: bytes
    starter: bytes = b""
    """Not empty: the event stands in its guild's line, and this is the message that starts the work on it, ..."""
    owner: str = ""
    """... and the id of that task."""


class Writer(Protocol):
    """Makes messages. Asked in the driver's loop: it must not wait for anything."""

    @property
    def fleet(self) -> str:
        """Namespace of the fleet that works on the queues."""
        ...

    @property
    def ratio(self) -> float:
        """Of that fleet, for its bells."""
        ...

    def wants(self, name: str) -> bool:
        """Whether events of this name are for anybody."""
        ...

    def write(self, event: Event, identity: str) -> Written:
        """The message for an event; the same for the same event of the same session."""
        ...
