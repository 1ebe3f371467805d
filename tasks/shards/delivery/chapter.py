"""One session of a shard in this pod: what was heard in it and is not handed on, and what the other target's log says.

No I/O: `backlog` puts chapters into a row, `delivery` carries out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tasks.shards.delivery.calls import MOST_ENTRIES, Parcel
from tasks.shards.delivery.overlap import Overlap
from tasks.shards.delivery.windows import Copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tasks.shards.delivery.calls import Overlapped
    from tasks.shards.delivery.parcels import Writer, Written
    from tasks.shards.gateway.session import Event, Session

MOST_EVENTS, MOST_BYTES = 128, 512 * 1024
"""In one DELIVER: the server does nothing else meanwhile."""


@dataclass(slots=True)
class Item:
    """An event on its way."""

    event: Event
    guild: int
    identity: str
    heard_s: float
    replayed: bool
    repeats: str = ""
    """The entry of the log that it repeats."""
    called: bool = False
    """The user's callback had it."""
    written: Written | None = None

    @property
    def sequence(self) -> int:
        """Its number in the session."""
        return self.event.sequence


@dataclass(slots=True)
class Passed:
    """Events that nobody wants: they only move the sequence, up to here."""

    sequence: int


@dataclass
class Chapter:
    """See the module."""

    generation: int
    session: Session
    base: int
    """All of it is handed on up to here."""
    ready_s: float | None = None
    """When its READY came; None: it is resumed."""
    told: bool = False
    """Redis has it."""
    ended: bool = False
    """Discord has dropped it."""
    beside: bool = True
    """It may have begun beside another target, so the log is to be read."""
    items: deque[Item | Passed] = field(default_factory=deque["Item | Passed"])
    gone: list[str] = field(default_factory=list[str])
    """Entries of the log that are to be taken out of it."""
    after: str = ""
    """The last entry that was read."""
    final: bool = False
    """The log is read to its end, and nothing more comes into it."""
    settled: bool = False
    """It was compared with all of it."""
    overlap: Overlap | None = None
    prunes: bool = False
    """What was before READY is known, and to be taken out of the log: all that is left is to be heard."""
    compared: int = 0
    """Up to this event the overlap knows them."""

    @property
    def reads(self) -> bool:
        """Whether there may be more in the log."""
        return self.beside and not self.final

    def passed(self, sequence: int) -> None:
        """An event that nobody wants."""
        last = self.items[-1] if self.items else None
        if isinstance(last, Passed):
            last.sequence = sequence
        else:
            self.items.append(Passed(sequence))

    def note_log(self, told: Overlapped) -> None:
        """More of the log."""
        if told.entries:
            if self.overlap is None:
                self.overlap, self.compared = Overlap(told.ready_ms or told.entries[0].at_ms), 0
            self.after = told.entries[-1].id
            self.gone += self.overlap.handed_on(told.entries)
        self.final = told.code == "serves" and len(told.entries) < MOST_ENTRIES

    def compare(self, now_ms: int, to_ms: Callable[[float], int]) -> None:
        """Find out what repeats entries of the log. `to_ms`: a time of this process on the server's clock."""
        overlap = self.overlap
        if overlap is None:
            return
        first = self.final and not self.settled
        for item in self._events():
            if item.sequence > self.compared:
                self.compared = item.sequence
                copy = Copy(item.sequence, item.guild, item.identity, to_ms(item.heard_s), item.replayed)
                if not self.final or overlap.concerns(copy):
                    overlap.heard(copy)
        settled = overlap.settle(now_ms, final=self.final)
        self.gone += settled.gone
        if settled.repeats:
            for item in self._events():
                item.repeats = item.repeats or settled.repeats.get(item.sequence, "")
        self.settled = self.final
        if overlap.over():
            self.overlap = None
        elif first:
            self.prunes = True

    def _events(self) -> Iterator[Item]:
        return (item for item in self.items if isinstance(item, Item))

    def uncalled(self) -> Item | None:
        """The next event for the user's callback."""
        return next((item for item in self._events() if not item.called and not item.repeats), None)

    def parcels(self, now_s: float, writer: Writer | None, *, serves: bool) -> list[Parcel]:
        """What may go on now, in its order. `writer`: None where a callback has the events."""
        found: list[Parcel] = []
        size = 0
        if serves and self.reads:
            return found  # what the log holds is not known yet
        for item in self.items:
            parcel = self._parcel(item, now_s, writer, serves=serves)
            if parcel is None or len(found) >= MOST_EVENTS or size >= MOST_BYTES:
                break
            size += len(parcel.message)
            found.append(parcel)
        return found

    def _parcel(self, item: Item | Passed, now_s: float, writer: Writer | None, *, serves: bool) -> Parcel | None:
        if isinstance(item, Passed):
            return Parcel(item.sequence, "pass")
        ago_ms = max(0, round((now_s - item.heard_s) * 1000))
        common = (item.guild, item.identity, ago_ms, item.replayed)
        if item.repeats:
            return Parcel(item.sequence, "skip", "", item.repeats, *common)
        if not serves:
            return None
        if writer is None:
            return Parcel(item.sequence, "note", "", "", *common) if item.called else None
        if item.written is None:
            item.written = writer.write(item.event, item.identity)
        w = item.written
        deed = "line" if w.starter else "push"
        return Parcel(item.sequence, deed, w.queue, "", *common, w.message, w.starter, w.owner)

    def handed_on(self, sequence: int) -> list[Item]:
        """All up to here is: returns the events that go."""
        self.base = max(self.base, sequence)
        went: list[Item] = []
        while self.items and self.items[0].sequence <= sequence:
            item = self.items.popleft()
            if isinstance(item, Item):
                went.append(item)
        return went
