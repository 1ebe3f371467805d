"""The book of a stand-in: what clients did, and which events it told, numbered. Data and I/O-free queries.

Times are of the stand-in's clock, `time.monotonic` where nothing else is given: on Linux that is the machine's, so
consumers in other processes of the machine may compare theirs.

Kinds of entries: connect, hello, beat (a connection's first), identify, refused (too soon: op 9), ready, settled (all
guilds of the READY have come that can), resume, resumed, invalid (op 9), reconnect (op 7), asked (op 1), answered,
closed (by the client or a broken line; `code` 1006 where no code came), shut (by the stand-in), over (a session is
gone), breach (what Discord bears with). Of connect, identify and resume `why` is the door: main or resume.

An event's number is in no payload. It is found again by the event's *mark*, a digest of its name and all of its data;
events that are equal in everything have one mark and several numbers.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Entry(NamedTuple):
    """One thing that happened."""

    at_s: float
    kind: str
    client: int
    """Number of the connection; 0: none."""
    shard: int = -1
    total: int = 0
    session: str = ""
    sequence: int = 0
    code: int = 0
    bucket: int = -1
    """Of an IDENTIFY: shard % max_concurrency at that moment."""
    why: str = ""


class Told(NamedTuple):
    """An event that every session of its shards gets."""

    number: int
    at_s: float
    guild: int
    """0: none, a direct message or the like."""
    name: str
    mark: str
    heard: bool = True
    """False: there are sessions for it, and none has the intent."""


class Book:
    """Entries and events in the order in which they happened."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """An empty book."""
        self.clock = clock
        self.entries: list[Entry] = []
        self.told: list[Told] = []
        self.beats = 0
        """Heartbeats of all clients."""
        self.counts: Counter[str] = Counter()
        """Entries by kind."""

    def note(self, kind: str, client: int = 0, **more: Any) -> Entry:
        """Write an entry; `more` as the fields of `Entry`."""
        entry = Entry(self.clock(), kind, client, **more)
        self.entries.append(entry)
        self.counts[kind] += 1
        return entry

    def tell(self, guild: int, name: str, data: Any, *, heard: bool = True) -> int:
        """Number an event, from 1."""
        number = len(self.told) + 1
        self.told.append(Told(number, self.clock(), guild, name, mark(name, data), heard))
        return number

    def of(self, *kinds: str) -> list[Entry]:
        """The entries of these kinds."""
        return [entry for entry in self.entries if entry.kind in kinds]


def mark(name: str, data: Any) -> str:
    """What an event is known by: equal for equal name and data, whatever the order of keys."""
    text = json.dumps([name, data], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
