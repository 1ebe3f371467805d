"""Which of Discord's events go to which queue, and which keep their order: read from settings. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

REST, NOBODY = "*", "-"
_NAME = re.compile(r"^([A-Z][A-Z0-9_]*|\*)$")
_QUEUE = re.compile(r"^[A-Za-z0-9_.:-]+$")


@dataclass(frozen=True, slots=True)
class Routes:
    """Event name -> queue."""

    rest: str | None
    """The queue of events that are not named; None: nobody wants them."""
    named: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    ordered: frozenset[str] = frozenset()
    """Names of events that keep their order in each guild; `*`: all."""

    def queue_of(self, name: str) -> str | None:
        """The queue for an event; None: nobody wants it."""
        return self.named.get(name, self.rest)

    def in_order(self, name: str) -> bool:
        """Whether it waits for what its guild did before."""
        return name in self.ordered or REST in self.ordered

    def queues(self) -> list[str]:
        """Every queue, each once."""
        return list(dict.fromkeys(queue for queue in (self.rest, *self.named.values()) if queue))


def parse_routes(events: str, ordered: str, default: str) -> Routes:
    """Routes from `NAME=QUEUE,...` and `NAME,...`; `default` is the queue of what is not named.

    Raises:
        ValueError: the text is not of that form.
    """
    named: dict[str, str | None] = {}
    for part in filter(None, (each.strip() for each in events.split(","))):
        name, equals, queue = part.partition("=")
        if not equals or not _NAME.match(name) or not _QUEUE.match(queue) or name in named:
            raise ValueError(part)
        named[name] = None if queue == NOBODY else queue
    rest = named.pop(REST, default)
    return Routes(rest, named, frozenset(parse_names(ordered)))


def parse_names(text: str) -> list[str]:
    """Names of events that are separated by commas. Raises ValueError for what is none."""
    names = [each for each in (part.strip() for part in text.split(",")) if each]
    for name in names:
        if not _NAME.match(name):
            raise ValueError(name)
    return names
