"""A flood on five pods of which four may work, with critical work sent into it.

What is measured, with the brake at each of its gates and on plain Celery:

makespan_ratio   first publication to the last end of a normal task / (tasks x seconds / places).
                 Places are the pods that may do normal work: all of them under plain Celery.
wake_p50, p99    ms from the end of a task to the start of the next on any pod, while work waits
critical         ms from the publication of a critical task to its start
per_task         client commands on the broker in the whole flood, idle looks and heartbeats of the
                 pods included, divided by the tasks; apart are the result back end's, and those of
                 the doorkeeper, which go by the second and not by the task
requeues         messages that were put back because they were not admitted
results_wake     the wake-up where results are kept: storing one is part of the way
idle             commands a second of a pod that has nothing to do, with Celery's own heartbeat
saturated        of the pod that is denied while normal work waits (plain: of a pod that is full)
keeper           what the fleet's doorkeeper costs on top, a second, for the whole idle fleet; and in
                 the flood (it watches for producers that ring no bell, and is told of every change)
load             of the machine (one minute's average) as the flood began: on a machine that others
                 use, times say little
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, cast

from app.local.judge import Published
from app.local.waiting import wait_until
from benchmarks.arguments import POOLS, add_systems, gates, positive, whole
from benchmarks.fleet import KEYS, RATIO, Fleet, Variant
from benchmarks.monitor import Monitor, tcp_ports
from benchmarks.report import quantile, rounded
from benchmarks.wakeups import wake_ups_ms
from benchmarks.workload import CRITICAL, NORMAL, RELEASE

if TYPE_CHECKING:
    import argparse

    from benchmarks.fleet import Run
    from benchmarks.report import Report, Row

SUMMARY = "a flood with critical work in it, on every pool: pace, order, latency, commands"
FIGURES = (
    "makespan_ratio", "wake_p50_ms", "wake_p99_ms", "critical_max_ms", "lost", "out_of_order", "requeues", "violations",
    "per_task", "results_per_task", "results_wake_p50_ms", "results_wake_p99_ms", "idle_per_s", "saturated_per_s",
    "keeper_per_s", "keeper_flood_per_s", "load",
)  # fmt: skip
PODS = 5
CRITICAL_EVERY_S, CRITICAL_S = 0.7, 0.1
JOURNAL = 1_000_000
PATIENCE_S = 90.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    add_systems(parser)
    parser.add_argument("--pool", choices=POOLS, action="append", help="measure this pool (all); may be repeated")
    parser.add_argument("--tasks", type=whole, default=120, help="normal tasks (120)")
    parser.add_argument("--seconds", type=positive, default=0.3, help="length of a normal task (0.3)")
    parser.add_argument("--critical", type=whole, default=5, help="critical tasks, 0.7 s apart (5)")
    parser.add_argument("--window", type=positive, default=8.0, help="seconds for which commands are counted (8)")


def run(options: argparse.Namespace, report: Report) -> int:
    """Measure each pool with the brake at its gates, then without."""
    for pool in options.pool or POOLS:
        for gate in gates(options):
            row = measure(options, report, Variant(gate, pool=pool, results=True, journal=JOURNAL if gate else 0))
            report.add(row)
            if gate == "take":
                expect(row, report)
    return report.finish(FIGURES, heads=("system", "pool"))


def expect(row: Row, report: Report) -> None:
    """Hold Headroom's figures against what is promised."""
    for name in ("lost", "out_of_order", "requeues", "violations"):
        report.expect(row, name, "exactly", 0)
    report.expect(row, "makespan_ratio", "at most", 1.08)
    report.expect(row, "per_task", "at most", 3.3)
    report.expect(row, "idle_per_s", "at most", 3.5)
    report.expect(row, "saturated_per_s", "at most", 3.5)
    report.expect(row, "keeper_per_s", "at most", 10)
    report.expect(row, "wake_p50_ms", "at most", 8, binding=False)
    report.expect(row, "wake_p99_ms", "at most", 40, binding=False)
    report.expect(row, "critical_max_ms", "at most", 50, binding=False)


def measure(options: argparse.Namespace, report: Report, variant: Variant) -> Row:
    """One variant: an idle fleet, the flood, a fleet that is full."""
    label = f"{variant.system} on {variant.pool}"
    places = max(1, int(RATIO * PODS)) if variant.gate else PODS
    report.progress(f"{label}: starting {PODS} pods")
    with Fleet(variant, PODS) as fleet:
        _warm_up(fleet)
        report.progress(f"{label}: counting the commands of an idle fleet")
        idle, keeper = _rates(fleet, options.window)
        report.progress(f"{label}: {options.tasks} tasks of {options.seconds:g} s, {options.critical} critical ones")
        began_load = os.getloadavg()[0]
        floods = _floods(options, fleet, places)
        report.progress(f"{label}: counting the commands of a full fleet")
        saturated = _saturated(fleet, places, options.window)
        still_there = len(fleet.remaining())
    return {
        "system": variant.system,
        "pool": variant.pool,
        **floods,
        "idle_per_s": rounded(max(idle.values())),
        "saturated_per_s": rounded(max(saturated.values())),
        "keeper_per_s": rounded(keeper) if variant.gate else None,
        "left": still_there,
        "load": rounded(began_load),
    }


def _warm_up(fleet: Fleet) -> None:
    """Have every pod run a task, or at least try: connections are open and scripts loaded then."""
    sent = 4 * PODS
    for _ in range(sent):
        fleet.send("rest", 0.02)
    fleet.send("rest", 0.0, queue=CRITICAL)
    _wait_done(fleet, sent + 1)


def _wait_done(fleet: Fleet, count: int) -> None:
    """Wait until so many tasks are done since the start, and everything is acknowledged."""
    wait_until(lambda: fleet.done() >= count, PATIENCE_S, what=lambda: f"{count} tasks done, {fleet.done()} are")
    wait_until(lambda: fleet.held() == 0, PATIENCE_S, what="the last acknowledgement")


class Flood:
    """One flood: what was published, what the tasks recorded, what MONITOR saw."""

    def __init__(self, fleet: Fleet, places: int, *, results: bool) -> None:
        """``results``: whether they are kept; ``places``: how many normal tasks may run at once."""
        self.fleet = fleet
        self.places = places
        self.published: list[Published] = []
        self.runs: list[Run] = []
        self._results = results

    def play(self, *, tasks: int, seconds: float, critical: int = 0) -> None:
        """Publish the normal tasks at once and the critical ones at their times; return when all is done."""
        before = self.fleet.done()
        with Monitor(self.fleet.broker) as self.monitor:
            began_s = time.monotonic()
            for _ in range(tasks):
                self._send(seconds, NORMAL)
            for number in range(critical):
                time.sleep(max(0.0, began_s + (number + 1) * CRITICAL_EVERY_S - time.monotonic()))
                self._send(CRITICAL_S, CRITICAL)
            _wait_done(self.fleet, before + len(self.published))
            self.took_s = time.monotonic() - began_s
        self.runs = self.fleet.runs(before)

    def _send(self, seconds: float, queue: str) -> None:
        at_s = time.time()
        task = self.fleet.send("rest", seconds, queue=queue, result=self._results)
        self.published.append(Published(task, queue, at_s))

    def wake_ups_ms(self) -> list[float]:
        """From each end of a task to the start of the next."""
        return wake_ups_ms(self.runs, places=self.places, critical=CRITICAL)

    def critical_ms(self) -> list[float]:
        """From each critical task's publication to its start; those that never started are left out."""
        began = {run.task: run.began_s for run in self.runs}
        return [
            (began[sent.task] - sent.at_s) * 1000
            for sent in self.published
            if sent.queue == CRITICAL and sent.task in began
        ]

    def makespan_s(self) -> float:
        """From the first publication to the last end of a normal task."""
        return max(run.ended_s for run in self.runs if run.queue == NORMAL) - self.published[0].at_s

    def commands(self) -> tuple[float, float]:
        """Commands on the broker: a task, the doorkeeper's left out; and the doorkeeper's a second."""
        keepers = self.monitor.ports_of("watch")
        calls = [call for call in self.monitor.calls if call.database == 0]
        kept = sum(call.port in keepers for call in calls)
        return (len(calls) - kept) / len(self.published), kept / self.took_s


def _floods(options: argparse.Namespace, fleet: Fleet, places: int) -> Row:
    """The flood of the figures, and a shorter one with results."""
    flood = Flood(fleet, places, results=False)
    flood.play(tasks=options.tasks, seconds=options.seconds, critical=options.critical)
    verdict = fleet.verdict(flood.published) if fleet.variant.gate else None
    requeues = verdict.requeues + fleet.put_back() if verdict else None
    kept = Flood(fleet, places, results=True)
    kept.play(tasks=max(1, options.tasks // 3), seconds=options.seconds)
    waits, critical = flood.wake_ups_ms(), flood.critical_ms()
    per_task, keeper_per_s = flood.commands()
    done = {run.task for run in flood.runs}
    return {
        "tasks": options.tasks,
        "makespan_s": rounded(flood.makespan_s()),
        "makespan_ratio": rounded(flood.makespan_s() / (options.tasks * options.seconds / places), 3),
        "wake_p50_ms": rounded(quantile(waits, 0.5)),
        "wake_p99_ms": rounded(quantile(waits, 0.99)),
        "critical_ms": [rounded(ms, 1) for ms in critical],
        "critical_max_ms": rounded(max(critical, default=0.0), 1),
        "per_task": rounded(per_task),
        "commands": dict(flood.monitor.names().most_common()),
        "keeper_flood_per_s": rounded(keeper_per_s) if verdict else None,
        "results_per_task": rounded(kept.monitor.names(1).total() / len(kept.published)),
        "results_wake_p50_ms": rounded(quantile(kept.wake_ups_ms(), 0.5)),
        "results_wake_p99_ms": rounded(quantile(kept.wake_ups_ms(), 0.99)),
        "lost": len({sent.task for sent in flood.published} - done),
        "doubled": len(flood.runs) - len(done),
        "out_of_order": len(verdict.out_of_order) if verdict else None,
        "requeues": requeues,
        "violations": len(verdict.violations) + len(verdict.contradictions) if verdict else None,
    }


def _saturated(fleet: Fleet, places: int, window_s: float) -> dict[str, float]:
    """Fill every place and let more work wait; commands a second of the pods that wait for a place.

    Under plain Celery every pod has a place: of all of them.
    """
    waiting = 2 * PODS
    before = fleet.done()
    for _ in range(places):
        fleet.send("hold")
    wait_until(lambda: fleet.held() == places, what=f"{places} places to be taken")
    for _ in range(waiting):
        fleet.send("rest", 0.0)
    idle = _pods_without_work(fleet) or set(fleet.pods)
    rates, _ = _rates(fleet, window_s)
    fleet.records.rpush(RELEASE, *range(places))
    _wait_done(fleet, before + places + waiting)
    return {pod: rate for pod, rate in rates.items() if pod in idle}


def _pods_without_work(fleet: Fleet) -> set[str]:
    """Pods that hold nothing; none is known under plain Celery, which files all under one key."""
    members = cast("list[bytes]", fleet.broker.zrange(KEYS.alive(), 0, -1)) if fleet.variant.gate else []
    return {
        member.decode().rpartition("#")[0] for member in members if not fleet.broker.hlen(KEYS.held(member.decode()))
    }


def _rates(fleet: Fleet, window_s: float) -> tuple[dict[str, float], float]:
    """Commands a second of each pod, and of the doorkeeper's own connection, while nothing is sent."""
    groups = {process.pid: name for name, process in fleet.pods.items()}
    owners = tcp_ports(groups)
    with Monitor(fleet.broker) as monitor:
        began_s = time.monotonic()
        time.sleep(window_s)
        took_s = time.monotonic() - began_s
    owners |= tcp_ports(groups)
    keepers = monitor.ports_of("watch")
    rates = dict.fromkeys(fleet.pods, 0.0)
    kept = 0.0
    for port, count in monitor.by_port().items():
        if port in keepers:
            kept += count / took_s
        elif port in owners:
            rates[groups[owners[port]]] += count / took_s
    return rates, kept
