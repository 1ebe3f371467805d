"""Sessions: what Discord keeps of a client between its connections, and who gets a copy of an event.

A session outlives its connection for a while, hears on, and is resumed from any sequence that it still has. It ends
when its client closes with 1000 or 1001, when a close code or an op 9 ends it, or when nobody resumed it in time. Every
session is a copy of its own: several of one shard, and of different totals, hear side by side.

A session hears of a guild from its GUILD_CREATE on, not before.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from app.local.discord.guilds import shard_of
from app.local.discord.intents import GUILDS, needed
from app.local.discord.wire import write_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from app.local.discord.client import Client
    from app.local.discord.wire import Dialect


class Event(NamedTuple):
    """One event for any number of sessions."""

    name: str
    guild: int
    """0: none."""
    body: str
    """Its data as JSON."""
    needs: int
    """The intent."""

    @classmethod
    def of(cls, name: str, guild: int, data: Any) -> Event:
        """Written once for all."""
        return cls(name, guild, json.dumps(data, separators=(",", ":")), needed(name, in_guild=bool(guild)))


class Session:
    """One session; `client` is None while no connection has it."""

    def __init__(self, shard: int, total: int, intents: int, dialect: Dialect, keep: int) -> None:
        """`keep`: events that can be replayed."""
        self.name = secrets.token_hex(16)
        self.shard, self.total, self.intents, self.dialect = shard, total, intents, dialect
        self.client: Client | None = None
        self.sequence = 0
        self.over = ""
        """Why it ended; empty while it lives."""
        self.waiting: set[int] = set()
        """Guilds of its READY whose GUILD_CREATE has not come."""
        self._log: deque[tuple[int, Event]] = deque()
        self._keep, self._forgotten = keep, 0

    def hears(self, event: Event) -> bool:
        """Whether an event of its shard is for it."""
        return (not event.needs or bool(event.needs & self.intents)) and event.guild not in self.waiting

    def send(self, event: Event) -> None:
        """Number it, keep it, and send it if somebody is there."""
        self.sequence += 1
        self._log.append((self.sequence, event))
        if len(self._log) > self._keep:
            self.forget(self._log[0][0])
        if self.client is not None:
            self.client.push(write_event(event.name, self.sequence, event.body))

    def send_resumed(self) -> None:
        """RESUMED belongs to a connection: it has a number, and is not replayed."""
        self.sequence += 1
        if self.client is not None:
            self.client.push(write_event("RESUMED", self.sequence, '{"_trace":[]}'))

    def create(self, event: Event) -> None:
        """A GUILD_CREATE of a guild that the READY named."""
        self.waiting.discard(event.guild)
        if GUILDS & self.intents:
            self.send(event)

    def forget(self, sequence: int) -> None:
        """What came up to this sequence cannot be replayed any more."""
        self._forgotten = max(self._forgotten, sequence)
        while self._log and self._log[0][0] <= sequence:
            self._log.popleft()

    def can_replay(self, sequence: int) -> bool:
        """Whether it still has all that came after."""
        return sequence >= self._forgotten

    def replay(self, sequence: int) -> Iterator[str]:
        """What came after, as it came then."""
        for number, event in self._log:
            if number > sequence:
                yield write_event(event.name, number, event.body)


class Sessions:
    """All that live, by name and by shard."""

    def __init__(self) -> None:
        """None."""
        self.by_name: dict[str, Session] = {}
        self._by_shard: defaultdict[int, defaultdict[int, list[Session]]] = defaultdict(lambda: defaultdict(list))

    def add(self, session: Session) -> None:
        """A new one."""
        self.by_name[session.name] = session
        self._by_shard[session.total][session.shard].append(session)

    def end(self, session: Session, why: str) -> bool:
        """It is gone. False: it was."""
        if session.over:
            return False
        session.over = why
        del self.by_name[session.name]
        shards = self._by_shard[session.total]
        shards[session.shard].remove(session)
        if not shards[session.shard]:
            del shards[session.shard]
        if not shards:
            del self._by_shard[session.total]
        return True

    def of(self, guild: int) -> Iterable[Session]:
        """Those that hear of a guild, in every total; of 0: each total's shard 0."""
        for total, shards in self._by_shard.items():
            yield from shards.get(shard_of(guild, total), ())

    def __iter__(self) -> Iterator[Session]:
        """All."""
        return iter(self.by_name.values())
