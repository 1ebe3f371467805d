"""How the copies of two sessions differ: a guild's events come later in one than in the other, or one lacks an event.

Each session has a lag of its own for each guild, drawn anew now and then. A guild's events keep their order in every
session; those of different guilds come in another order in each. Where `Terms.lag_s` is 0 all is sent at once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from app.local.discord.sessions import Event, Session
    from app.local.discord.terms import Terms

ANEW = 0.02
"""The probability that a lag is drawn anew with an event."""


class Late:
    """One session's events that have not come."""

    def __init__(self) -> None:
        """None."""
        self.heap: list[tuple[float, int, Event]] = []
        self.lags: dict[int, tuple[float, float]] = {}
        """Guild -> its share of `lag_s`, and when its last event is due."""
        self.timer: asyncio.TimerHandle | None = None


class Drift:
    """Between a gateway and its sessions."""

    def __init__(self, terms: Terms, now_s: Callable[[], float], seed: int = 1) -> None:
        """Nothing is late."""
        self._terms, self._now_s = terms, now_s
        self._chance = random.Random(seed)
        self._order = itertools.count()
        self._late: WeakKeyDictionary[Session, Late] = WeakKeyDictionary()

    def deliver(self, event: Event, sessions: Sequence[Session]) -> None:
        """Send an event to those that hear it, to each in its time; at least one of several gets it."""
        hearing = [session for session in sessions if session.hears(event)]
        if self._terms.leaves_out > 0 and len(hearing) > 1 and self._chance.random() < self._terms.leaves_out:
            hearing.remove(self._chance.choice(hearing))
        for session in hearing:
            late = self._late.get(session)
            if self._terms.lag_s <= 0 and (late is None or not late.heap):
                session.send(event)
            else:
                self._put_off(session, event)

    def catch_up(self, session: Session) -> None:
        """Send what is late at once."""
        late = self._late.get(session)
        if late is not None:
            while late.heap:
                session.send(heapq.heappop(late.heap)[2])

    def end(self) -> None:
        """Nothing comes any more."""
        for late in self._late.values():
            if late.timer is not None:
                late.timer.cancel()

    def _put_off(self, session: Session, event: Event) -> None:
        late = self._late.setdefault(session, Late())
        share, due_s = late.lags.get(event.guild, (-1.0, 0.0))
        if share < 0 or self._chance.random() < ANEW:
            share = self._chance.random()
        due_s = max(due_s, self._now_s() + share * self._terms.lag_s)
        late.lags[event.guild] = (share, due_s)
        heapq.heappush(late.heap, (due_s, next(self._order), event))
        self._wait(session, late)

    def _wait(self, session: Session, late: Late) -> None:
        if late.timer is not None:
            late.timer.cancel()
        after_s = max(0.0, late.heap[0][0] - self._now_s())
        late.timer = asyncio.get_running_loop().call_later(after_s, self._send_due, session, late)

    def _send_due(self, session: Session, late: Late) -> None:
        now_s = self._now_s()
        while late.heap and late.heap[0][0] <= now_s and not session.over:
            session.send(heapq.heappop(late.heap)[2])
        if late.heap and not session.over:
            self._wait(session, late)
