"""What the brake costs: the time that tasks which do nothing need, beside plain Celery.

A backlog is published while the pod is paused (SIGSTOP); the clock runs from the moment at which it
goes on until nothing is queued or held any more. One pod of each system stands ready all the time,
and they take turns, first one and then the other first, so that whatever else the machine does
meets both. ``time_ratio`` is the median with the brake divided by the median without: below 1, the
brake saves time.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from app.local.waiting import wait_until
from benchmarks.arguments import whole
from benchmarks.fleet import Fleet, Variant
from benchmarks.report import median, rounded

if TYPE_CHECKING:
    import argparse

    from benchmarks.report import Report, Row

SUMMARY = "tasks that do nothing: time with the brake / time on plain Celery"
COLUMNS = (
    "pool",
    "concurrency",
    "prefetch",
    "headroom_per_s",
    "celery_per_s",
    "time_ratio",
    "lowest",
    "highest",
    "load",
)
POOLS = ("prefork", "threads")
STEPS = (1, 4)
WARM_UP = 50
PATIENCE_S = 120.0
EVERY_S = 0.02


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    parser.add_argument("--pool", choices=POOLS, action="append", help="measure this pool (both); may be repeated")
    parser.add_argument("--concurrency", type=whole, action="append", help="measure this one (1 and 4)")
    parser.add_argument("--prefetch", type=whole, action="append", help="measure this multiplier (1 and 4)")
    parser.add_argument("--tasks", type=whole, default=800, help="tasks of one repetition (800)")
    parser.add_argument("--repeat", type=whole, default=5, help="repetitions (5)")


def run(options: argparse.Namespace, report: Report) -> int:
    """Measure each combination."""
    for pool in options.pool or POOLS:
        for concurrency in options.concurrency or STEPS:
            for prefetch in options.prefetch or STEPS:
                row = measure(options, report, pool=pool, concurrency=concurrency, prefetch=prefetch)
                report.add(row)
                report.expect(row, "time_ratio", "at most", 0.8)
    return report.finish(COLUMNS)


def measure(options: argparse.Namespace, report: Report, *, pool: str, concurrency: int, prefetch: int) -> Row:
    """One combination: both systems in turns."""
    label = f"{pool}, concurrency {concurrency}, prefetch {prefetch}"
    load = os.getloadavg()[0]
    times: dict[str, list[float]] = {"headroom": [], "celery": []}
    with ExitStack() as stack:
        fleets = [
            stack.enter_context(Fleet(Variant(gate, pool=pool, concurrency=concurrency, prefetch=prefetch), 1))
            for gate in ("take", "")
        ]
        for fleet in fleets:
            _seconds(fleet, WARM_UP)
        for number in range(options.repeat):
            for fleet in fleets if number % 2 == 0 else fleets[::-1]:
                times[fleet.variant.system].append(_seconds(fleet, options.tasks))
            gated, plain = times["headroom"][-1], times["celery"][-1]
            report.progress(f"{label}: {gated:.2f} s with the brake, {plain:.2f} s without")
    gated, plain = median(times["headroom"]) or 0.0, median(times["celery"]) or 0.0
    each = [one / other for one, other in zip(times["headroom"], times["celery"], strict=True)]
    return {
        "pool": pool,
        "concurrency": concurrency,
        "prefetch": prefetch,
        "tasks": options.tasks,
        "headroom_s": [rounded(value, 3) for value in times["headroom"]],
        "celery_s": [rounded(value, 3) for value in times["celery"]],
        "headroom_per_s": round(options.tasks / gated),
        "celery_per_s": round(options.tasks / plain),
        "time_ratio": rounded(gated / plain, 3),
        "lowest": rounded(min(each), 3),
        "highest": rounded(max(each), 3),
        "load": rounded(load),
    }


def _seconds(fleet: Fleet, tasks: int) -> float:
    """Publish a backlog to a paused pod and return the seconds that it then needs.

    The last task of the backlog writes down when it ended. Nobody else asks the broker anything in
    the meantime: with tasks that do nothing, whoever looks takes a share of the machine.
    """
    pod = fleet.pods["pod-1"]
    before = fleet.done()
    pod.pause()
    for _ in range(tasks - 1):
        fleet.send("nothing")
    fleet.send("rest", 0.0)
    began_s = time.time()
    pod.resume()
    wait_until(lambda: fleet.done() > before, PATIENCE_S, what=f"{tasks} tasks to be done", every_s=EVERY_S)
    (last,) = fleet.runs(before)
    wait_until(lambda: fleet.queued() == 0 and fleet.held() == 0, PATIENCE_S, what="the last acknowledgement")
    return last.ended_s - began_s
