"""Producers that are faster than the fleet, for minutes, on a Redis that becomes full.

Two producers publish through Celery as fast as they can, and a third pipelines ready messages as a service in another
language might. Redis may use little memory and evicts nothing (``maxmemory-policy noeviction``), so it is full within
seconds and stays so: a producer is let in again whenever a pod has made room. When the producers have stopped, the
fleet does what was accepted.

| figure | meaning, and what it must be |
|---|---|
| refused | publications that were answered with an error |
| unclear | of these: the error does not say that the memory is full: 0 |
| ghosts | done although its publication was refused: 0 |
| lost | accepted and not done: 0 |
| doubled | done more than once: 0 |
| out_of_order | takes that came before an earlier message of the same producer: 0 |
| violations | admissions against the rule, by replay of the journal: 0 |
| restarts | pods that ended, or had to join again: 0 |
| rss_growth_mb | memory of the worker's process that grew most, in the flood's second half; binds from a minute on |

The journal is read while it is written and cut behind, or it would fill the memory instead of the queue.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from app.local.processes import ROOT, START_S
from app.local.waiting import wait_until
from benchmarks.arguments import POOLS, positive, whole
from benchmarks.fleet import KEYS, RATIO, Fleet, Variant
from benchmarks.flooding.follower import Follower
from benchmarks.growth import Growth
from benchmarks.report import rounded

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from app.local.guard import Process
    from app.local.replay import Replay, Take
    from benchmarks.fleet import Run
    from benchmarks.report import Report

SUMMARY = "producers faster than the fleet, on a Redis that is full"
FIGURES = (
    "pool", "seconds", "sent", "sent_per_s", "accepted", "refused", "unclear", "ghosts", "lost", "doubled",
    "out_of_order", "order_checked", "violations", "restarts", "done_per_s", "longest_queue", "peak_mb",
    "rss_growth_mb", "open_files_growth", "drained_s",
)  # fmt: skip
NONE_OF = ("unclear", "ghosts", "lost", "doubled", "out_of_order", "violations", "restarts")
PODS = 4
JOURNAL = 10_000_000
FULL = "maxmemory"
"""Redis' word for it, in its error's text."""
LOOK_S, TELL_S = 0.5, 5.0
STILL_S = 20.0
RSS_MB, OPEN_FILES, WARM_S = 4.0, 2.0, 60.0


class Told(NamedTuple):
    """What a producer was told."""

    accepted: list[int]
    sent: int
    refusals: Mapping[str, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    parser.add_argument("--seconds", type=positive, default=120.0, help="of flood (120)")
    parser.add_argument("--maxmemory", type=whole, default=32, help="of Redis, in MB (32)")
    parser.add_argument("--pods", type=whole, default=PODS, help="workers (4)")
    parser.add_argument("--pool", choices=POOLS, default="prefork")


def run(options: argparse.Namespace, report: Report) -> int:
    """One flood."""
    server = {"maxmemory": f"{options.maxmemory}mb", "maxmemory-policy": "noeviction"}
    variant = Variant("take", pool=options.pool, journal=JOURNAL, server=server)
    report.progress(f"starting {options.pods} pods")
    with Fleet(variant, options.pods) as fleet:
        row = Flood(fleet, report).measure(options.seconds)
    report.add(row)
    report.expect(row, "reached_the_limit", "exactly", 1)
    for name in NONE_OF:
        report.expect(row, name, "exactly", 0)
    long = options.seconds >= WARM_S
    report.expect(row, "rss_growth_mb", "at most", RSS_MB, binding=long)
    report.expect(row, "open_files_growth", "at most", OPEN_FILES, binding=long)
    return report.finish(FIGURES, heads=("pool",))


class Flood:
    """One flood over one fleet."""

    def __init__(self, fleet: Fleet, report: Report) -> None:
        """Prepare; the fleet's pods are there."""
        self.fleet, self.report = fleet, report
        self.growth = Growth()
        self.longest = 0
        self.peak_mb = 0.0
        self.pids = {name: pod.pid for name, pod in fleet.pods.items()}
        self.folder: Path = fleet.guard.folder("flood")
        self._next_look_s = self._next_tell_s = 0.0

    def measure(self, seconds: float) -> dict[str, Any]:
        """Flood for so long, drain, and judge."""
        fleet, report = self.fleet, self.report
        ttl_ms = round(fleet.variant.ttl_s * 1000)
        with Follower(fleet.server.url, KEYS.journal(), ratio=RATIO, ttl_ms=ttl_ms) as follower:
            producers = [self._start(0), self._start(1), self._start(2, "--pipelined")]
            wait_until(lambda: all((self.folder / str(n)).exists() for n in range(3)), START_S, what="the producers")
            began_s = time.monotonic()
            while time.monotonic() - began_s < seconds:
                self._look("flood")
            done = fleet.done()
            told = [self._stop(producer) for producer in producers]
            survivors = self.growth.grown(seconds / 4)
            report.progress(f"{sum(len(each.accepted) for each in told)} accepted; waiting until they are done")
            drained_s = self._drain()
        sent = sum(each.sent for each in told)
        refusals = sum((Counter(each.refusals) for each in told), Counter[str]())
        for text, count in refusals.most_common(5):
            report.progress(f"{count} times a producer was told: {text}")
        ended = sum(not pod.running for pod in fleet.pods.values())
        return {
            "system": fleet.variant.system,
            "pool": fleet.variant.pool,
            "seconds": seconds,
            "sent": sent,
            "sent_per_s": round(sent / seconds),
            "refused": refusals.total(),
            "reached_the_limit": int(refusals.total() > 0),
            "unclear": sum(count for text, count in refusals.items() if FULL not in text),
            **self._weighed(told, follower.found),
            "restarts": ended + len(follower.members) - len(fleet.pods),
            "done_per_s": round(done / seconds),
            "longest_queue": self.longest,
            "peak_mb": rounded(self.peak_mb, 1),
            "rss_growth_mb": max((grown.rss_mb for grown in survivors), default=None),
            "open_files_growth": max((grown.files for grown in survivors), default=None),
            "drained_s": drained_s,
        }

    def _weighed(self, told: Sequence[Told], found: Replay) -> dict[str, int]:
        """What the producers were told against what the tasks and the journal say."""
        accepted = {f"{producer}-{n}" for producer, each in enumerate(told) for n in each.accepted}
        runs = self.fleet.runs()
        times = Counter(run.task for run in runs)
        wrong, checked = disorder(found.takes, runs)
        return {
            "accepted": len(accepted),
            "ghosts": len(set(times) - accepted),
            "lost": len(accepted - set(times)),
            "doubled": sum(count > 1 for count in times.values()),
            "out_of_order": wrong,
            "order_checked": checked,
            "violations": len(found.violations) + len(found.contradictions),
        }

    def _start(self, number: int, *arguments: str) -> Process:
        command = [sys.executable, "-m", "benchmarks.flooding.producer", str(number), self.fleet.server.url]
        name = f"producer-{number}"
        return self.fleet.guard.start(
            name, [*command, str(self.folder / f"{number}"), *arguments], log=self.folder / f"{name}.log", cwd=ROOT
        )

    def _stop(self, producer: Process) -> Told:
        """End a producer and read what it was told."""
        producer.terminate()
        producer.wait(30.0)
        number = producer.name.rpartition("-")[2]
        last = cast("dict[str, Any]", json.loads(producer.read_log().splitlines()[-1]))
        accepted = [int(line) for line in (self.folder / number).read_text().split()]
        return Told(accepted, last["sent"], last["refusals"])

    def _look(self, when: str) -> int:
        """Look at everything; returns how many messages are queued or held."""
        fleet = self.fleet
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            time.sleep(self._next_look_s - now_s)
        self._next_look_s = time.monotonic() + LOOK_S
        queued = fleet.queued()
        memory = cast("dict[str, int]", fleet.broker.info("memory"))["used_memory"] / 2**20
        self.longest, self.peak_mb = max(self.longest, queued), max(self.peak_mb, memory)
        self.growth.look(self.pids)
        if time.monotonic() >= self._next_tell_s:
            self._next_tell_s = time.monotonic() + TELL_S
            self.report.progress(f"{when}: {queued} queued, {fleet.done()} done, Redis at {memory:.1f} MB")
        return queued + fleet.held()

    def _drain(self) -> float:
        """Wait until all is done, or nothing moves any more."""
        began_s = moved_s = time.monotonic()
        seen = -1
        while self._look("after it"):
            done = self.fleet.done()
            if done != seen:
                seen, moved_s = done, time.monotonic()
            if time.monotonic() - moved_s > STILL_S:
                break
        return round(time.monotonic() - began_s, 1)


def disorder(takes: Sequence[Take], runs: Sequence[Run]) -> tuple[int, int]:
    """How many takes came before an earlier message of the same producer, and how many were looked at."""
    tasks = {(run.pod, int(run.take)): run.task for run in runs}
    newest: dict[str, int] = {}
    wrong = checked = 0
    for take in sorted(takes, key=lambda take: take.seq):
        task = tasks.get((take.pod, take.take))
        if task is None or take.deliveries:
            continue
        producer, _, n = task.rpartition("-")
        checked += 1
        wrong += int(n) < newest.get(producer, -1)
        newest[producer] = max(newest.get(producer, -1), int(n))
    return wrong, checked
