"""How late a schedule's runs are, and what the death of the beat that leads costs, beside plain ``celery beat``.

Three schedules of the same 20 entries, from every 0.5 s to every 5 s, each on a server of its own, all at the same time
on the same machine: three beats of Headroom (one leads, two stand by), one beat of Headroom, one plain ``celery beat``.
After `--seconds` the beat that leads is killed by SIGKILL; one that was alone is started again at once, as Kubernetes
does, with the schedule's file that it left. Published runs are taken from Redis as they come, and timed there.

late_*     from a run's due time to its publication, before the kill. A run of Headroom tells its due time; a run of
           plain beat is due one interval after the entry's last one, which is how it reckons
drift_ms   how much later than the first run and whole intervals say an entry's last run is, before the kill; the median
           of the entries. Lateness that adds up
next_s     from the kill to the next run that is published
missing    due times, from an entry's first run to its last, for which there was no run. The missed runs of Headroom's
           entries are made up here (`catchup`: all)
doubled    due times for which there were two
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import threading
import time
from collections import Counter, defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from app.local.guard import Guard
from app.local.processes import Placement
from app.local.servers import Server
from app.local.waiting import wait_until
from benchmarks.arguments import positive
from benchmarks.report import quantile, rounded
from benchmarks.schedule import INTERVALS_S, LONGEST_S, QUEUE
from throttle.keys import Keys

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    import redis

    from app.local.guard import Process
    from benchmarks.report import Report

SUMMARY = "lateness of scheduled runs, and the death of the beat that leads, beside plain celery beat"
FIGURES = ("runs", "late_p50_ms", "late_p99_ms", "drift_ms", "next_s", "missing", "doubled")
KINDS = {("headroom", 3): "take", ("headroom", 1): "take", ("celery", 1): ""}
"""System and number of beats -> gate of the app; none is plain Celery."""
PATIENCE_S = 60.0
# By then all is taken that was published before a kill: a new leader needs longer to its first run.
TAKEN_S = 0.05


class Run(NamedTuple):
    """One message of the schedule, as it came out of Redis."""

    entry: str
    at_s: float
    due_s: float | None
    """What it runs for, where the message says so."""


class Beats:
    """The beats of one schedule on a server of their own, and all that they publish."""

    def __init__(self, guard: Guard, system: str, count: int) -> None:
        """Start them, and the thread that takes what they publish."""
        self.label = f"{system}, {count} beats" if count > 1 else f"{system}, alone"
        self.system, self.count = system, count
        self.seen: list[Run] = []
        self._guard = guard
        server = Server(guard).start()
        self._client: redis.Redis = server.client()
        self._gate = KINDS[system, count]
        folder = guard.folder(f"beat-{system}-{count}")
        self._placement = Placement(server.url, folder, {"BENCH_GATE": self._gate}, app="benchmarks.schedule")
        self._running: dict[str, Process] = {}
        for number in range(1, count + 1):
            self._start(f"beat-{number}")
        self._over = threading.Event()
        self._taker = threading.Thread(target=self._take, args=(server.client(),), daemon=True)
        self._taker.start()

    def _start(self, name: str) -> None:
        command = [sys.executable, "-m", "celery", "-A", self._placement.app, "beat", "--pidfile", ""]
        if not self._gate:
            command += ["--schedule", str(self._placement.folder / "schedule")]
        environment = self._placement.environment(POD_NAME=name)
        log = self._placement.log(name)
        self._running[name] = self._guard.start(name, command, log=log, env=environment, cwd=self._placement.folder)

    def _take(self, client: redis.Redis) -> None:
        while not self._over.is_set():
            answer = cast("tuple[bytes, bytes] | None", client.blpop([QUEUE], timeout=0.5))
            at_s = time.time()
            if answer is not None:
                headers = json.loads(answer[1])["headers"]
                due = headers.get("beat_due")
                due_s = datetime.fromisoformat(due).timestamp() if due else None
                self.seen.append(Run(headers["task"], at_s, due_s))

    def kill_leader(self) -> float:
        """Kill the beat that leads, start it again if it was alone; the time of the kill."""
        leader = "beat-1"
        if self._gate:
            lease = cast("bytes | None", self._client.get(Keys("benchmark").schedule_lease()))
            leader = (lease or b"").decode().partition("#")[0]
        at_s = time.time()
        self._running[leader].kill()
        if self.count == 1:
            self._start(leader)
        return at_s

    def close(self) -> None:
        """Take nothing more."""
        self._over.set()
        self._taker.join(5.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    parser.add_argument("--seconds", type=positive, default=25.0, help="before the kill (25)")


def run(options: argparse.Namespace, report: Report) -> int:
    """All schedules at once."""
    with Guard() as guard:
        report.progress("starting")
        schedules = [Beats(guard, system, count) for system, count in KINDS]
        for beats in schedules:
            wait_until(lambda beats=beats: len(beats.seen) > 0, PATIENCE_S, what=f"the first run of {beats.label}")
        report.progress(f"each has run; {options.seconds:g} s")
        from_s = time.time()
        time.sleep(options.seconds)
        kills_s = [beats.kill_leader() for beats in schedules]
        report.progress("killed who leads")
        for beats, at_s in zip(schedules, kills_s, strict=True):
            after_s = at_s + TAKEN_S
            wait_until(lambda b=beats, s=after_s: b.seen[-1].at_s > s, PATIENCE_S, what=f"a run of {beats.label}")
        time.sleep(LONGEST_S + 1)
        for beats, at_s in zip(schedules, kills_s, strict=True):
            beats.close()
            row = figures(beats.seen, from_s=from_s, kill_s=at_s)
            row = {"system": beats.system, "beats": beats.count, **row}
            report.add(row)
            if beats.system == "headroom":
                report.expect(row, "missing", "exactly", 0)
                report.expect(row, "doubled", "exactly", 0)
    return report.finish(FIGURES, heads=("system", "beats"))


def figures(seen: Sequence[Run], *, from_s: float, kill_s: float) -> dict[str, Any]:
    """What the runs tell: their lateness between two times, and what became of due times altogether."""
    by_entry: dict[str, list[Run]] = defaultdict(list)
    for each in seen:
        by_entry[each.entry].append(each)
    later_s = [each.at_s for each in seen if each.at_s > kill_s + TAKEN_S]
    late_ms: list[float] = []
    drifts_ms: list[float] = []
    missing = doubled = 0
    for entry, runs in by_entry.items():
        interval_s = INTERVALS_S[entry]
        quiet = [each for each in runs if from_s <= each.at_s < kill_s]
        if len(quiet) > 1:
            drifts_ms.append((quiet[-1].at_s - quiet[0].at_s - (len(quiet) - 1) * interval_s) * 1000)
        for before, each in itertools.pairwise(quiet):
            due_s = before.at_s + interval_s if each.due_s is None else each.due_s
            late_ms.append((each.at_s - due_s) * 1000)
        places = numbered(runs, interval_s)
        missing += max(places) + 1 - len(places)
        doubled += sum(count - 1 for count in places.values())
    return {
        "runs": len(seen),
        "late_p50_ms": rounded(quantile(late_ms, 0.5)),
        "late_p99_ms": rounded(quantile(late_ms, 0.99)),
        "drift_ms": rounded(statistics.median(drifts_ms)) if drifts_ms else None,
        "next_s": rounded(min(later_s) - kill_s) if later_s else None,
        "missing": missing,
        "doubled": doubled,
    }


def numbered(runs: Sequence[Run], interval_s: float) -> Counter[int]:
    """How many runs there were for each due time of one entry, which are numbered from its first one."""
    places: Counter[int] = Counter()
    place, last = 0, runs[0]
    for each in runs:
        if each.due_s is not None and runs[0].due_s is not None:
            place = round((each.due_s - runs[0].due_s) / interval_s)
        else:
            place += round((each.at_s - last.at_s) / interval_s)
        places[place] += 1
        last = each
    return places
