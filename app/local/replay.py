"""Replays the journal of a fleet and finds every admission that the rule forbids.

The brake is judged by what it did, not by what it says of itself. From the journal only the bare
events are believed: who joined, beat, took, acknowledged, left. Who lived and who was busy at each
take is worked out here anew, in other words than the scripts use, with exact fractions. The ``busy``
and ``capacity`` that a take's entry carries are compared with that, and are themselves a finding
where they claim more room than there was.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Entry(NamedTuple):
    """One operation of the journal, in the order in which the server carried them out."""

    op: str
    member: str
    at_ms: int
    fields: Mapping[str, str]

    def number(self, name: str) -> int:
        """A field as a whole number; -1 where the entry has none."""
        return int(self.fields.get(name, "-1") or "-1")


class Violation(NamedTuple):
    """One admission against the rule, in words a person can follow up in the journal."""

    at_ms: int
    member: str
    take: int
    reason: str


@dataclass
class Member:
    """What the replay knows of one incarnation."""

    beat_ms: int
    draining: bool = False
    held: set[int] = field(default_factory=set[int])


class Take(NamedTuple):
    """One message (or permit) handed out."""

    pod: str
    take: int
    seq: int
    key: str
    at_ms: int
    deliveries: int
    critical: bool


@dataclass
class Replay:
    """The outcome: the takes in their order, the messages put back, and the violations."""

    takes: list[Take] = field(default_factory=list[Take])
    put_back: int = 0
    returned: int = 0
    violations: list[Violation] = field(default_factory=list[Violation])
    """Normal messages admitted while capacity other pods were busy; any message to a dead pod."""
    contradictions: list[Violation] = field(default_factory=list[Violation])
    """What cannot be in a right journal, though it admits nothing: effects that must have none."""


def parse(raw: Iterable[tuple[bytes | str, Mapping[bytes, bytes] | Mapping[str, str]]]) -> list[Entry]:
    """Entries from what XRANGE answers, decoded or not."""
    entries: list[Entry] = []
    for _, pairs in raw:
        fields = {_text(name): _text(value) for name, value in pairs.items()}
        entries.append(Entry(fields.pop("op"), fields.pop("member"), int(fields.pop("at")), fields))
    return entries


def replay(entries: Iterable[Entry], *, ratio: float | str, ttl_ms: int) -> Replay:
    """Follow the journal from its first entry and judge every take.

    Args:
        entries: complete from the first join on; a journal cut at its front judges members that it
            never saw join as not living.
        ratio: share of the living pods that may be busy, as it was configured.
        ttl_ms: a member that has not beaten for this long is not living.
    """
    return _Fleet(Fraction(str(ratio)), ttl_ms).follow(entries)


class _Fleet:
    """The state of the fleet while its journal is read."""

    def __init__(self, ratio: Fraction, ttl_ms: int) -> None:
        self.ratio = ratio
        self.ttl_ms = ttl_ms
        self.members: dict[str, Member] = {}
        self.found = Replay()

    def follow(self, entries: Iterable[Entry]) -> Replay:
        for entry in entries:
            getattr(self, f"_on_{entry.op}", self._on_other)(entry)
        return self.found

    def living(self, now_ms: int) -> dict[str, Member]:
        """Members that are not draining and have beaten within the TTL."""
        return {
            name: member
            for name, member in self.members.items()
            if not member.draining and now_ms - member.beat_ms < self.ttl_ms
        }

    def capacity(self, living: int) -> int:
        """How many of so many living pods may be busy with normal work."""
        return max(1, math.floor(self.ratio * living))

    def _on_join(self, entry: Entry) -> None:
        member = self.members.setdefault(entry.member, Member(entry.at_ms))
        member.beat_ms = entry.at_ms
        member.draining = entry.fields.get("state") == "draining"

    def _on_beat(self, entry: Entry) -> None:
        if entry.member in self.members:
            self.members[entry.member].beat_ms = entry.at_ms

    def _on_drain(self, entry: Entry) -> None:
        if entry.member in self.members:
            self.members[entry.member].draining = True

    def _on_gone(self, entry: Entry) -> None:
        self.members.pop(entry.member, None)

    def _on_take(self, entry: Entry) -> None:
        take = Take(
            pod=entry.member.rpartition("#")[0],
            take=entry.number("id"),
            seq=entry.number("seq"),
            key=entry.fields.get("key", ""),
            at_ms=entry.at_ms,
            deliveries=entry.number("deliveries"),
            critical=entry.fields.get("lane") == "critical",
        )
        self.found.takes.append(take)
        reason = self._against_the_rule(entry, take)
        if reason:
            self.found.violations.append(Violation(entry.at_ms, entry.member, take.take, reason))
        member = self.members.get(entry.member)
        if member is None:
            return
        if take.take in member.held:
            self._contradiction(entry, "taken twice under one number")
        member.held.add(take.take)
        claimed, living = entry.number("capacity"), len(self.living(entry.at_ms))
        if claimed > self.capacity(living):
            self._contradiction(entry, f"the script saw a capacity of {claimed} where {living} pods lived")

    def _on_hold(self, entry: Entry) -> None:
        """A member said, after a loss of data, what it still runs: nothing is admitted by that."""
        if entry.member in self.members:
            self.members[entry.member].held.add(entry.number("id"))

    def _on_ack(self, entry: Entry) -> None:
        self._let_go(entry)

    def _on_drop(self, entry: Entry) -> None:
        """An older snapshot of Redis came back, with what was acknowledged since."""
        self._let_go(entry)

    def _on_back(self, entry: Entry) -> None:
        self._let_go(entry)
        if entry.fields.get("where") in ("head", "tail"):
            self.found.put_back += 1

    def _on_return(self, _: Entry) -> None:
        self.found.returned += 1

    def _on_other(self, _: Entry) -> None:
        """``empty`` keeps the slot until the work ends; ``lost`` had no effect."""

    def _let_go(self, entry: Entry) -> None:
        member = self.members.get(entry.member)
        if member is None or entry.number("id") not in member.held:
            # It was returned to its queue by then, or never taken: the operation must have no effect.
            self._contradiction(entry, f"{entry.op} of a message that it did not hold was accepted")
            return
        member.held.discard(entry.number("id"))

    def _against_the_rule(self, entry: Entry, take: Take) -> str:
        """Why a take must not have been admitted; empty when it was right."""
        living = self.living(entry.at_ms)
        if entry.member not in living:
            return "taken by a member that was not living"
        if take.critical:
            return ""
        others = sum(1 for name, member in living.items() if name != entry.member and member.held)
        capacity = self.capacity(len(living))
        if others >= capacity:
            return f"{others} other pods were busy, capacity {capacity} of {len(living)} living"
        return ""

    def _contradiction(self, entry: Entry, reason: str) -> None:
        self.found.contradictions.append(Violation(entry.at_ms, entry.member, entry.number("id"), reason))


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
