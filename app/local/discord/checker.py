"""Weighs what consumers heard, and what clients did, against the book of the stand-in. Pure.

Lost, doubled, out of order: an event is known by its mark (`book.mark`), of which there are as many as there were
equal events, so that two genuine equal events are two. A report of an event that no test told, such as the
GUILD_CREATEs of a new session, is *unknown*: counted, no fault.

Gaps: a *spell* is a time in which one session served its shard through a connection, from RESUMED, or from when the
guilds of its READY had come, to the end of the socket as the stand-in saw it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from app.local.discord.book import Entry, Told

ENDS = frozenset({"closed", "shut", "invalid", "over"})


class Heard(NamedTuple):
    """What a consumer reports of one event."""

    mark: str
    name: str = ""
    at_s: float = 0.0
    """On the stand-in's clock; 0: not known."""


class Verdict(NamedTuple):
    """What became of the events that were told."""

    told: int
    heard: int
    """Reports of events that were told."""
    lost: list[Told]
    doubled: list[Heard]
    disordered: list[tuple[Told, Told]]
    """In one guild: an event, and a later one that was heard before it."""
    unknown: Counter[str]
    """Reports of what was never told, by name."""
    late_s: list[float]
    """From telling to hearing, in rising order; of the reports with a time."""

    @property
    def broken(self) -> list[str]:
        """In words; empty when all is well."""
        lines = [f"lost: {event}" for event in self.lost[:5]] + [f"doubled: {report}" for report in self.doubled[:5]]
        lines += [f"out of order: {first} after {second}" for first, second in self.disordered[:5]]
        counts = f"{len(self.lost)} lost, {len(self.doubled)} doubled, {len(self.disordered)} out of order"
        return [f"{counts}, of {self.told}", *lines] if lines else []


def weigh(told: Iterable[Told], heard: Iterable[Heard], *, ordered: bool = True) -> Verdict:
    """Compare.

    Args:
        told: of the book; those that no session has the intent for are left out.
        heard: in the order in which consumers heard.
        ordered: whether each guild's order is looked at (and that of what has no guild).
    """
    events = {event.number: event for event in told if event.heard}
    open_: defaultdict[str, list[int]] = defaultdict(list)
    for number in sorted(events):
        open_[events[number].mark].append(number)
    newest: dict[int, int] = {}
    verdict = Verdict(len(events), 0, [], [], [], Counter(), [])
    count = 0
    for report in heard:
        if report.mark not in open_:
            verdict.unknown[report.name] += 1
            continue
        count += 1
        numbers = open_[report.mark]
        if not numbers:
            verdict.doubled.append(report)
            continue
        # Among equal events, the next one of its guild.
        at = bisect_right(numbers, newest.get(events[numbers[0]].guild, 0))
        event = events[numbers.pop(at if at < len(numbers) else 0)]
        if report.at_s:
            verdict.late_s.append(report.at_s - event.at_s)
        before = newest.get(event.guild, 0)
        if ordered and event.number < before:
            verdict.disordered.append((event, events[before]))
        newest[event.guild] = max(before, event.number)
    verdict.lost.extend(events[number] for number in sorted(number for left in open_.values() for number in left))
    verdict.late_s.sort()
    return verdict._replace(heard=count)


class Spell(NamedTuple):
    """A time in which a shard was served by one session."""

    shard: int
    total: int
    session: str
    from_s: float
    to_s: float


class Hole(NamedTuple):
    """A time in which a shard, or a guild, was not served."""

    what: str
    from_s: float
    to_s: float

    @property
    def length_s(self) -> float:
        """Seconds."""
        return self.to_s - self.from_s


def spells(entries: Iterable[Entry], until_s: float, *, connected: bool = True) -> list[Spell]:
    """When each shard was served, by their beginnings; what has not ended ends at `until_s`.

    `connected=False`: when a session was there that kept events, with a connection or without.
    """
    found: list[Spell] = []
    since: dict[str, float] = {}
    clients: dict[str, int] = {}
    settled: set[str] = set()
    slots: dict[str, tuple[int, int]] = {}
    for entry in entries:
        name = entry.session
        if not name or entry.shard < 0:
            continue
        slots[name] = (entry.shard, entry.total)
        if entry.kind == "settled":
            settled.add(name)
        if entry.kind in ("ready", "resumed"):
            clients[name] = entry.client
        gone = entry.kind == "over" or (connected and entry.kind in ENDS and clients.get(name) == entry.client)
        if gone:
            clients.pop(name, None)
            begun = since.pop(name, None)
            if begun is not None:
                found.append(Spell(*slots[name], name, begun, entry.at_s))
            if entry.kind == "over":
                settled.discard(name)
        elif name in settled and name in clients:
            since.setdefault(name, entry.at_s)
    found += [Spell(*slots[name], name, begun, until_s) for name, begun in since.items()]
    return sorted(found, key=lambda spell: spell.from_s)


def ended_s(found: Iterable[Spell], total: int) -> float:
    """When the last spell of a total ended; 0 where it had none."""
    return max((spell.to_s for spell in found if spell.total == total), default=0.0)


def gaps(found: Iterable[Spell]) -> list[Hole]:
    """Between the spells of each shard of each total; a shard that ended for good has no gap."""
    by_slot: defaultdict[tuple[int, int], list[Spell]] = defaultdict(list)
    for spell in found:
        by_slot[spell.shard, spell.total].append(spell)
    holes: list[Hole] = []
    for (shard, total), line in by_slot.items():
        holes += _holes(f"shard {shard}/{total}", line, line[0].from_s, max(spell.to_s for spell in line))
    return holes


def figures(entries: Sequence[Entry], until_s: float) -> dict[str, float]:
    """What it took: counts of identifies, of those refused, of resumes and of those that worked, and the gaps in ms."""
    counts = Counter(entry.kind for entry in entries)
    lengths_ms = sorted(hole.length_s * 1000 for hole in gaps(spells(entries, until_s)))
    return {
        "identifies": counts["identify"],
        "refused": counts["refused"],
        "resumes": counts["resume"],
        "resumed": counts["resumed"],
        "gaps": len(lengths_ms),
        "gap_p95_ms": share(lengths_ms, 0.95),
        "gap_p99_ms": share(lengths_ms, 0.99),
        "gap_ms": share(lengths_ms, 1.0),
    }


def share(rising: Sequence[float], part: float) -> float:
    """The value that this part of them does not exceed; 0 of none."""
    return rising[math.ceil(part * len(rising)) - 1] if rising else 0.0


def unserved(found: Iterable[Spell], guilds: Iterable[int], from_s: float, to_s: float) -> list[Hole]:
    """The times in which a guild had no spell of any total."""
    by_slot: defaultdict[tuple[int, int], list[Spell]] = defaultdict(list)
    for spell in found:
        by_slot[spell.shard, spell.total].append(spell)
    totals = sorted({total for _, total in by_slot})
    known: dict[tuple[int, ...], list[tuple[float, float]]] = {}
    holes: list[Hole] = []
    for guild in guilds:
        shards = tuple((guild >> 22) % total for total in totals)
        if shards not in known:
            mine = [spell for slot in zip(shards, totals, strict=True) for spell in by_slot.get(slot, ())]
            mine.sort(key=lambda spell: spell.from_s)
            known[shards] = [(hole.from_s, hole.to_s) for hole in _holes("", mine, from_s, to_s)]
        holes += [Hole(f"guild {guild}", *hole) for hole in known[shards]]
    return holes


def spacing(entries: Iterable[Entry]) -> Mapping[int, float]:
    """The shortest time between two IDENTIFYs of each bucket that had more than one, of all pods and totals."""
    last: dict[int, float] = {}
    shortest: dict[int, float] = {}
    for entry in entries:
        if entry.kind == "identify":
            if entry.bucket in last:
                shortest[entry.bucket] = min(shortest.get(entry.bucket, 1e9), entry.at_s - last[entry.bucket])
            last[entry.bucket] = entry.at_s
    return shortest


def _holes(what: str, line: list[Spell], from_s: float, to_s: float) -> list[Hole]:
    holes: list[Hole] = []
    covered_s = from_s
    for spell in line:
        if spell.from_s > covered_s:
            holes.append(Hole(what, covered_s, min(spell.from_s, to_s)))
        covered_s = max(covered_s, spell.to_s)
        if covered_s >= to_s:
            return holes
    return [*holes, Hole(what, covered_s, to_s)]
