"""Where two sessions hear the same: which of one's events the other one handed on already. Pure, no clock, no I/O.

Given are, for each guild, two windows on one row of events: the log (*entries*: what the active target handed on) and
what a shard of the pending target heard since its READY (*copies*). Entries begin before the READY. So for the true
number k of entries that were before it,

    copies[i] is entries[k + i]    as far as both go

and either copies are left over (not handed on yet, or never) or entries are (still to be heard).

k is found in the order of these:

1. An event that occurs once and is in both says it.
2. What does not repeat itself fits in one way only. Times decide whether it does, or there is no overlap; less so the
   longer it is, for a pod may stand still and hear late.
3. A row that repeats itself fits in several. Each k contradicts some time of arrival by so much: a copy that came when
   its entry did not; an entry before the READY that came after it. The k with the least contradiction is taken. What
   is told by a RESUME, or read after a standstill, comes late, so it cannot have come *too* late.
4. If nothing fits (Discord left something out of one of the rows), copies are matched one to one by identity, the
   nearest in time first, and the rows go on behind the last pair. An event that occurs once is always matched.

Two equal events of one row remain two. A wrong k is possible only where equal events follow one another faster than
the difference of the two sessions' delays varies, and costs one event that is doubled or missing for each step.

While more may come of both rows (the target is pending) only what is certain is decided; with `final` all of it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tasks.shards.delivery.identity import is_unique
from tasks.shards.delivery.windows import NEAR_MS, Copy, Entry, anchor, candidates, fits, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

CLEAR_MS = 250
"""While the target is pending: by so much the best k must be better than the second."""
APART_MS = 15_000
"""Where the rows are walked in step, an equal event that comes so much later than its entry should is another one."""
LONG_BEFORE_MS = 60_000
"""An entry that is so much older than READY has no copy."""
ALL_LEFT = 1
"""For `began_ms`: what was before the READY has been taken out of the log."""
LOOK_MS = 5_000
LATE_MS = 180_000
"""An entry whose copy has not come for so long will not come: longer than a session can be resumed."""
SAMPLES = 64
"""Pairs from which the usual difference of arrival is taken."""


class Settled(NamedTuple):
    """What was found out."""

    repeats: dict[int, str]
    """Sequence of a copy -> the entry that it repeats."""
    gone: list[str]
    """Entries that no copy will come for."""


class _Row:
    """One guild."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        self.copies: deque[Copy] = deque()
        self.aligned = False

    def anchored(self) -> tuple[int, int] | None:
        """The first event that occurs once and is in both; asked for while the rows are not aligned."""
        return None if self.aligned else anchor(self.entries, self.copies)


class Overlap:
    """The two rows of each guild, walked in step. One for a shard of the pending target, from its READY on."""

    def __init__(self, began_ms: int) -> None:
        """`began_ms`: when READY came, on the server's clock; ALL_LEFT: all that is left of the log is to be heard."""
        self._began_ms = began_ms
        self._rows: defaultdict[int, _Row] = defaultdict(_Row)
        self._touched: set[int] = set()
        self._strays: dict[str, Entry] = {}
        """Entries that occur once and were given up, by identity: their copies are known all the same."""
        self._samples: deque[int] = deque(maxlen=SAMPLES)
        self._final = False
        self._looked_ms = 0

    def concerns(self, copy: Copy) -> bool:
        """Whether anything of the log could be what this copy repeats."""
        row = self._rows.get(copy.guild)
        return copy.identity in self._strays or (row is not None and bool(row.entries or row.copies))

    def over(self) -> bool:
        """Whether nothing of the log is left to be heard, and none will come."""
        return self._final and not self._strays and not any(row.entries for row in self._rows.values())

    def handed_on(self, entries: Iterable[Entry]) -> list[str]:
        """More of the log, in its order. Returns entries that are too old for a copy to come."""
        old: list[str] = []
        for entry in entries:
            if entry.at_ms < self._began_ms - LONG_BEFORE_MS:
                old.append(entry.id)
            else:
                self._rows[entry.guild].entries.append(entry)
                self._touched.add(entry.guild)
        return old

    def heard(self, copy: Copy) -> None:
        """Another event of this session."""
        self._rows[copy.guild].copies.append(copy)
        self._touched.add(copy.guild)

    def settle(self, now_ms: int, *, final: bool) -> Settled:
        """Walk as far as it goes. With `final` the log is whole: a copy that is left is nobody's, and is forgotten."""
        found = Settled({}, [])
        looked_at = self._rows if final and not self._final else self._touched
        # Rows in which an event says where they begin come first: they tell how far apart the times of a pair are.
        for guild in sorted(looked_at, key=lambda guild: self._rows[guild].anchored() is None):
            row = self._rows[guild]
            self._settle(row, found, now_ms, final=final)
            if not row.entries and not row.copies and (final or not row.aligned):
                del self._rows[guild]
        self._touched.clear()
        self._final = self._final or final
        if final and now_ms >= self._looked_ms + LOOK_MS:
            self._looked_ms = now_ms
            self._give_up(found, now_ms)
        return found

    # -- one guild

    def _settle(self, row: _Row, found: Settled, now_ms: int, *, final: bool) -> None:
        if self._strays:
            for copy in [copy for copy in row.copies if copy.identity in self._strays]:
                found.repeats[copy.sequence] = self._strays.pop(copy.identity).id
                row.copies.remove(copy)
        if row.entries and row.copies and not row.aligned:
            self._align(row, found, now_ms, final=final)
        while row.aligned and row.entries and row.copies:
            entry, copy = row.entries[0], row.copies[0]
            if entry.identity != copy.identity:
                if not self._find_again(row, found, final=final):
                    break
            elif self._too_late(entry, copy):
                self._drop(row.entries.popleft(), found)
            else:
                self._pair(row.entries.popleft(), row.copies.popleft(), found)
        if final:
            row.copies.clear()
            self._drop_what_was_before(row, found)

    def _drop_what_was_before(self, row: _Row, found: Settled) -> None:
        """Entries from before the READY have no copies. Whoever comes next is told all at once and cannot see that.

        FLIP is later than READY by more than any delay: a copy of what is left would have come by now, or is to come.
        """
        before_ms = self._began_ms - self._skew_ms()
        while not row.aligned and row.entries and row.entries[0].at_ms < before_ms:
            self._drop(row.entries.popleft(), found)

    def _pair(self, entry: Entry, copy: Copy, found: Settled) -> None:
        found.repeats[copy.sequence] = entry.id
        if is_unique(entry.identity) and not entry.replayed and not copy.replayed:
            self._samples.append(copy.at_ms - entry.at_ms)

    def _drop(self, entry: Entry, found: Settled) -> None:
        found.gone.append(entry.id)
        if is_unique(entry.identity):
            self._strays[entry.identity] = entry

    def _skew_ms(self) -> int:
        return round(median(self._samples)) if self._samples else 0

    def _too_late(self, entry: Entry, copy: Copy) -> bool:
        """Whether this is another event that is equal: what happens once is never too late, nor is what was missed."""
        apart_ms = copy.at_ms - entry.at_ms - self._skew_ms()
        return apart_ms > APART_MS and not copy.replayed and not is_unique(entry.identity)

    def _give_up(self, found: Settled, now_ms: int) -> None:
        for guild, row in list(self._rows.items()):
            while row.entries and row.entries[0].at_ms + LATE_MS < now_ms:
                self._drop(row.entries.popleft(), found)
            if not row.entries:
                del self._rows[guild]
        self._strays = {name: entry for name, entry in self._strays.items() if entry.at_ms + LATE_MS >= now_ms}

    def _align(self, row: _Row, found: Settled, now_ms: int, *, final: bool) -> None:
        """Find where the copies begin among the entries, if that is certain or must be."""
        entries, copies = tuple(row.entries), tuple(row.copies)
        anchored = row.anchored()
        if anchored is not None:
            k = anchored[0] - anchored[1]
            fitting = k >= 0 and fits(entries, copies, k)
        else:
            best, *others = candidates(entries, copies, self._began_ms, now_ms, self._skew_ms())
            clear = bool(self._samples) and bool(others) and others[0].against_ms - best.against_ms >= CLEAR_MS
            if not (final or clear):
                return
            k, fitting = best.k, best.alone or best.against_ms <= NEAR_MS
        row.aligned = True
        if fitting:
            for _ in range(k):
                self._drop(row.entries.popleft(), found)
        else:
            self._find_again(row, found, final=final)

    def _find_again(self, row: _Row, found: Settled, *, final: bool) -> bool:
        """The rows differ: go on where they meet again. False: they do not, as far as they are known."""
        pairs = nearest(tuple(row.entries), tuple(row.copies), self._skew_ms(), final=final)
        if not pairs:
            return False
        entries = [row.entries.popleft() for _ in range(1 + max(entry for entry, _ in pairs))]
        copies = [row.copies.popleft() for _ in range(1 + max(copy for _, copy in pairs))]
        for entry, copy in pairs:
            self._pair(entries[entry], copies[copy], found)
        paired = {entry for entry, _ in pairs}
        for number, entry in enumerate(entries):
            if number not in paired:
                self._drop(entry, found)
        return True
