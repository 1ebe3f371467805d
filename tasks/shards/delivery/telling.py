"""What an outbox tells of itself: events (`throttle.events`) and lines for a person. Nothing is decided here."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from tasks.shards.listening import ERRORS
from throttle import events

if TYPE_CHECKING:
    from tasks.shards.delivery.backlog import Backlog
    from tasks.shards.vocabulary import Slot

logger = logging.getLogger(__name__)

SAID_AGAIN_S = 60.0


class Teller:
    """Of one outbox."""

    def __init__(self) -> None:
        """Nothing was said."""
        self._said_s: dict[str, float] = {}

    def full(self, backlog: Backlog) -> None:
        """There is no room, and this shard is about to be given up."""
        logger.warning("shards: %d events of %s wait; it is given up, and resumed later", backlog.events, backlog.slot)
        events.emit(events.SHARD_OUTGROWN, *backlog.slot, backlog.events, backlog.bytes)

    def failed(self, error: BaseException, waiting: int) -> None:
        """Nothing was handed on, and so many events wait: Redis did not answer, or there is a fault of our own."""
        if isinstance(error, ERRORS):
            what = "shards: Redis does not answer (%s); %d events wait"
            self._seldom(logging.WARNING, "away", what, error, waiting)
        else:
            what = "shards: the outbox failed (%r); %d events wait"
            self._seldom(logging.ERROR, f"fault {type(error).__name__}", what, error, waiting, exc_info=error)

    def forgotten(self, slot: Slot, count: int) -> None:
        """Redis has forgotten so many sequences of a session, or (-1) all of it."""
        what = f"{count} events that {slot} handed on" if count > 0 else f"the session of {slot}"
        logger.warning("shards: Redis has forgotten %s; what nobody had taken there is lost", what)
        events.emit(events.SHARD_FORGOTTEN, *slot, "part" if count > 0 else "session", max(0, count))

    def odd(self, key: str) -> None:
        """A queue is none."""
        what = "shards: nothing is handed on: the key %r in Redis is no list; look with TYPE"
        self._seldom(logging.ERROR, f"odd {key}", what, key)

    def unwritten(self, slot: Slot, error: BaseException) -> None:
        """No message can be made of what a shard heard."""
        what = "shards: nothing of shard %s is handed on: its events cannot be written (%r)"
        self._seldom(logging.ERROR, f"unwritten {slot} {type(error).__name__}", what, slot, error)

    def refused(self, slot: Slot, error: BaseException) -> None:
        """Redis refuses what a shard hands on, as it does when it is full."""
        what = "shards: what shard %s heard cannot be handed on now (%s)"
        self._seldom(logging.WARNING, f"refused {type(error).__name__}", what, slot, error)

    def _seldom(
        self, level: int, about: str, what: str, *arguments: object, exc_info: BaseException | None = None
    ) -> None:
        """Say what may stay so for long, and is seen at each try: once a minute. `about`: what is the same."""
        if time.monotonic() > self._said_s.get(about, 0.0):
            self._said_s[about] = time.monotonic() + SAID_AGAIN_S
            logger.log(level, what, *arguments, exc_info=exc_info)
