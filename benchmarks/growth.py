"""Whether processes grow: memory and open files of every process of some pods, from /proc.

A process that has just started grows: it imports, opens its connections and fills Python's pools, each with the first
task, the first retry, the first reconnect that it meets. So the first half of its life is left out. Of the second, the
growth is the slope of the straight line through the looks times the length of the time: what a process of steady size
shows is near 0, whatever its size. Only processes that lived long enough say anything, and of those the one that grew
most counts.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
LEAST_LOOKS = 5


class Look(NamedTuple):
    """One process at one instant."""

    at_s: float
    rss_mb: float
    files: int


class Grown(NamedTuple):
    """How one process grew."""

    name: str
    seconds: float
    """For how long it was looked at: the second half of its life."""
    rss_mb: float
    files: float


class Growth:
    """Looks at processes again and again."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self.looks: dict[tuple[str, int], list[Look]] = defaultdict(list)

    def look(self, pods: Mapping[str, int]) -> None:
        """Look at every process of these pods now: name -> process group."""
        names = {group: name for name, group in pods.items()}
        for pid, group in groups_of(names):
            seen = look(pid)
            if seen is not None:
                self.looks[names[group], pid].append(seen)

    def grown(self, least_s: float) -> list[Grown]:
        """Each process whose second half of life lasted so long, the one that grew most last."""
        found: list[Grown] = []
        for (name, pid), looks in self.looks.items():
            rest = looks[len(looks) // 2 :]
            seconds = rest[-1].at_s - rest[0].at_s if rest else 0.0
            if seconds >= least_s and len(rest) >= LEAST_LOOKS:
                times = [seen.at_s for seen in rest]
                rss_mb = rise(times, [seen.rss_mb for seen in rest])
                files = rise(times, [seen.files for seen in rest])
                found.append(Grown(f"{name}/{pid}", round(seconds, 1), round(rss_mb, 2), round(files, 2)))
        return sorted(found, key=lambda grown: grown.rss_mb)


def rise(times: Sequence[float], values: Sequence[float]) -> float:
    """By how much a straight line through these values rises from the first to the last time."""
    return statistics.linear_regression(times, values).slope * (times[-1] - times[0])


def look(pid: int) -> Look | None:
    """A process now; None when it has ended."""
    process = Path("/proc") / str(pid)
    try:
        resident = int((process / "statm").read_text().split()[1])
        return Look(time.monotonic(), resident * PAGE_MB, sum(1 for _ in (process / "fd").iterdir()))
    except (OSError, IndexError):
        return None


def groups_of(groups: Mapping[int, object]) -> Iterator[tuple[int, int]]:
    """Each process that belongs to one of these groups, with its group."""
    for pid, fields in _processes():
        group = int(fields[2])
        if group in groups:
            yield pid, group


def children_of(pid: int) -> list[int]:
    """The children of a process."""
    return [child for child, fields in _processes() if int(fields[1]) == pid]


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Every process with what follows its name in ``stat``: state, parent, group, and more."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                # The name in parentheses may contain anything.
                fields = (process / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            yield int(process.name), fields
