"""Two windows on one row of events, that of a guild: where does the second begin? Pure, no state. See `overlap`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tasks.shards.delivery.identity import is_unique

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NEAR_MS = 2000
"""Without a fit, a copy is an entry's when they came so close to one another; a fit may not contradict more."""
ALIKE_MS = 110
"""Two k that differ by less in this are equally good: delays vary."""
EACH_MS = 1000
"""By so much each further event that is another one, and in its place, outweighs what times say against a k."""


class Entry(NamedTuple):
    """An event that was handed on, as the log has it."""

    id: str
    guild: int
    identity: str
    at_ms: int
    """When it was heard, on the server's clock."""
    replayed: bool = False
    """It was told by a RESUME, or read after a standstill, so it happened earlier."""


class Copy(NamedTuple):
    """An event as the other session heard it."""

    sequence: int
    guild: int
    identity: str
    at_ms: int
    replayed: bool = False


# ---------------------------------------------------------------- where the second window begins


class Candidate(NamedTuple):
    """A k that fits."""

    against_ms: int
    """The most that some time of arrival speaks against it."""
    k: int
    alone: bool = False
    """It is believed whatever times say: see `candidates`."""


def anchor(entries: Iterable[Entry], copies: Iterable[Copy]) -> tuple[int, int] | None:
    """The first event that occurs once and is in both: its place in each."""
    places = {entry.identity: place for place, entry in enumerate(entries) if is_unique(entry.identity)}
    for place, copy in enumerate(copies):
        if copy.identity in places:
            return places[copy.identity], place
    return None


def fits(entries: Sequence[Entry], copies: Sequence[Copy], k: int) -> bool:
    """Whether the copies are the entries from k on, as far as both go."""
    return all(copies[i].identity == entries[k + i].identity for i in range(min(len(copies), len(entries) - k)))


def candidates(
    entries: Sequence[Entry], copies: Sequence[Copy], began_ms: int, now_ms: int, skew_ms: int
) -> list[Candidate]:
    """Every k that fits, the best first; that there is no overlap always does. Of equally good ones the longest.

    A pod that stood still hears late, so times may contradict what is true. What fits in one way only is believed
    nevertheless, the more the longer it is: a row does not come again in its order by chance. It must have gone on
    after the READY; what was before it was heard by one alone, and comes again like much else.
    """
    found: list[Candidate] = []
    first = copies[0].identity
    for k, entry in enumerate(entries):
        if entry.identity == first and fits(entries, copies, k):
            found.append(Candidate(_against_ms(entries, copies, k, began_ms, now_ms, skew_ms), k))
    k = len(entries)
    none = Candidate(_against_ms(entries, copies, k, began_ms, now_ms, skew_ms), k)
    if len(found) == 1:
        alone = found[0]
        common = entries[alone.k : alone.k + len(copies)]
        others = len({entry.identity for entry in common}) - 1
        after_ready = common[-1].at_ms + skew_ms > began_ms + ALIKE_MS
        if others and after_ready and alone.against_ms - EACH_MS * others <= none.against_ms:
            return [alone._replace(alone=True)]
    found.append(none)
    best_ms = min(found).against_ms
    return sorted(found, key=lambda each: (max(0, each.against_ms - best_ms - ALIKE_MS), each.k))


def _against_ms(  # noqa: PLR0917 - all that a time can speak against
    entries: Sequence[Entry], copies: Sequence[Copy], k: int, began_ms: int, now_ms: int, skew_ms: int
) -> int:
    """How far the times of arrival contradict k: the most that one of them does, in ms."""
    both = min(len(copies), len(entries) - k)
    against = [0]
    for entry, copy in zip(entries[k : k + both], copies[:both], strict=True):
        against.append(_apart_ms(entry, copy, skew_ms))
    # The last that was before the READY, and the first that was not.
    against += [at_ms + skew_ms - began_ms for at_ms in _last_live_ms(entries, k)]
    against += [began_ms - entry.at_ms - skew_ms for entry in entries[k : k + 1]]
    # The first that is still to be heard, and the first that is newer than all entries.
    if not copies[-1].replayed:
        against += [now_ms - entry.at_ms - skew_ms for entry in entries[k + both : k + both + 1]]
    for copy in copies[both : both + 1]:
        against += [at_ms + skew_ms - copy.at_ms for at_ms in _last_live_ms(entries, len(entries))]
    return max(against)


def _last_live_ms(entries: Sequence[Entry], end: int) -> list[int]:
    """When the last of the entries before `end` was heard that was heard as it happened; none if none was."""
    return [entry.at_ms for entry in entries[:end] if not entry.replayed][-1:]


def _apart_ms(entry: Entry, copy: Copy, skew_ms: int) -> int:
    """By how much the times of a pair differ from what is usual; what a RESUME told may be as late as it likes."""
    apart_ms = copy.at_ms - entry.at_ms - skew_ms
    if apart_ms > 0:
        return 0 if copy.replayed else apart_ms
    return 0 if entry.replayed else -apart_ms


# ---------------------------------------------------------------- where no window fits


def nearest(entries: Sequence[Entry], copies: Sequence[Copy], skew_ms: int, *, final: bool) -> list[tuple[int, int]]:
    """Pairs of equal identity, one to one: events that occur once always, others in order when they came close.

    Without `final` only those that occur once: the other row may still bring a better one.
    """
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, entry in enumerate(entries):
        places[entry.identity].append(place)
    near: list[tuple[int, int, int]] = []
    for number, copy in enumerate(copies):
        for place in places.get(copy.identity, ()):
            apart_ms = -1 if is_unique(copy.identity) else _apart_ms(entries[place], copy, skew_ms)
            if apart_ms < 0 or (final and apart_ms <= NEAR_MS):
                near.append((apart_ms, place, number))
    chosen: list[tuple[int, int]] = []
    for apart_ms, place, number in sorted(near):
        taken = any(place == e or number == c for e, c in chosen)
        in_order = all((e < place) == (c < number) for e, c in chosen)
        if not taken and (in_order or apart_ms < 0):
            chosen.append((place, number))
    return sorted(chosen)
