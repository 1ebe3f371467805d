"""How long until the whole work goes on after something failed, beside plain Celery under the same.

Six pods, one task of 0.5 s each at a time, and a queue that never runs dry. With the brake four of them work
(capacity is 0.8 of those that live); plain Celery works on all six. Then, one after the other:

| case | what happens | counted from |
|---|---|---|
| crash | one working pod is killed by SIGKILL with its whole group, and stays away | the kill |
| restart | a working pod is killed and started at once under its name | its return, see below |
| third | two of the six, working, are killed at once and stay away | the kill |
| redis-frozen | Redis answers nobody for ten seconds (SIGSTOP) and goes on | its return |
| redis-restarted | Redis is killed, and started again with its data after ten seconds | its first answer |
| redis-silent | for ten seconds the network swallows everything; connections from before stay dead | its return |

*The whole work goes on* from the first instant at which two things hold: every task that was cut off has begun again
somewhere, and for 1.5 s from there on as many tasks run, on average, as the pods that are left may run (nine tenths of
it count; between two tasks lie milliseconds). It is worked out from what the tasks themselves recorded.

A pod's *return* is the instant at which its new process first asks to join the fleet, seen from outside by MONITOR.
What comes before it is the start of a Python process, which is the same without the brake and is given as ``start_s``.
For plain Celery, which asks for nothing, the return is the line that says that it is ready.

Plain Celery is given a visibility timeout as long as the TTL, with a sweep every second. With its default of an hour
the column would read 3600, and with one this short a task that runs for longer is delivered again while it runs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from app.local.waiting import WaitError, wait_until
from benchmarks.arguments import POOLS, add_systems, gates, positive
from benchmarks.blows import CASES, TASK_S, RecoveryFleet
from benchmarks.chaos.checker import runs_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.blows import Blow, Case
    from benchmarks.chaos.checker import Run
    from benchmarks.report import Report

SUMMARY = "time to the whole work after a crash, a mass crash, an outage of Redis, beside plain Celery"
FIGURES = ("system", "case", "counted_from", "cut_off", "start_s", "full_s", "target_s")
WINDOW_S = 1.5
FULL = 0.9
LOOK_BACK_S = 20 * TASK_S
"""A run that began so long ago is over; where it has no end, an earlier blow cut it off."""
PATIENCE_S = 70.0
"""A recovery that does not come is waited for so long."""


def cut_off(runs_by_task: Mapping[str, Sequence[Run]], blow: Blow) -> dict[str, float | None]:
    """Each task that a killed pod ran -> when it began again, or None."""
    found: dict[str, float | None] = {}
    for task, runs in runs_by_task.items():
        cut = [run for run in runs if is_cut(run, blow)]
        if cut:
            found[task] = next((run.from_s for run in runs if run.from_s > cut[-1].from_s), None)
    return found


def is_cut(run: Run, blow: Blow) -> bool:
    """Whether this run ended with its process."""
    return run.pod in blow.victims and run.to_s is None and blow.from_s - LOOK_BACK_S < run.from_s <= blow.over_s


def full_from(runs: Iterable[Run], *, from_s: float, places: int, now_s: float) -> float | None:
    """The first instant, not before ``from_s``, from which on so many tasks run; None when it has not come.

    Args:
        runs: those whose process lives, or lived to their end.
        from_s: where to begin to look.
        places: how many tasks may run at once.
        now_s: what has not ended runs until now.
    """
    alive = [(run.from_s, now_s if run.to_s is None else run.to_s) for run in runs]
    for begin_s in sorted({from_s, *(began_s for began_s, _ in alive if began_s > from_s)}):
        end_s = begin_s + WINDOW_S
        if end_s > now_s:
            return None
        work_s = sum(max(0.0, min(end_s, to_s) - max(begin_s, began_s)) for began_s, to_s in alive)
        if work_s >= FULL * places * WINDOW_S:
            return begin_s
    return None


def measure(fleet: RecoveryFleet, case: Case) -> tuple[Blow, int, float | None]:
    """Strike, and wait until the whole work goes on: the blow, how many tasks it cut off, and the seconds."""
    blow = case.strike(fleet)
    places = fleet.places(blow.gone)
    seen: dict[str, float | None] = {}

    def found() -> float | None:
        by_task = runs_of(fleet.told())
        seen.clear()
        seen.update(cut_off(by_task, blow))
        again = [at_s for at_s in seen.values() if at_s is not None]
        if len(again) < len(seen):
            return None
        runs = [run for its in by_task.values() for run in its if run.from_s > blow.over_s - LOOK_BACK_S]
        alive = [run for run in runs if not is_cut(run, blow)]
        return full_from(alive, from_s=max([blow.from_s, *again]), places=places, now_s=time.time())

    try:
        at_s = wait_until(found, PATIENCE_S, every_s=0.2)
    except WaitError:
        at_s = None
    return blow, len(seen), None if at_s is None else at_s - blow.from_s


# ---------------------------------------------------------------- the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    add_systems(parser)
    parser.add_argument("--case", choices=tuple(CASES), action="append", help="only this one; may be repeated")
    parser.add_argument("--ttl", type=positive, default=6.0, help="of a pod, in seconds, at least 3 (6)")
    parser.add_argument("--pool", choices=POOLS, default="prefork")


def run(options: argparse.Namespace, report: Report) -> int:
    """One system after the other, all cases on one fleet."""
    for gate in gates(options):
        with RecoveryFleet(gate, options.pool, options.ttl) as fleet:
            system = fleet.variant.system
            for name in options.case or CASES:
                case = CASES[name]
                fleet.prepare()
                report.progress(f"{system}: {name}")
                blow, count, full_s = measure(fleet, case)
                row: dict[str, Any] = {
                    "system": system,
                    "case": name,
                    "ttl_s": options.ttl,
                    "counted_from": case.counted_from,
                    "victims": len(blow.victims),
                    "cut_off": count,
                    "start_s": blow.start_s,
                    "full_s": None if full_s is None else round(full_s, 2),
                    "target_s": round(case.target_s(options.ttl), 2),
                }
                report.add(row)
                report.progress(f"{system}: {name}: the whole work {row['full_s']} s after {case.counted_from}")
                if gate == "take":
                    report.expect(row, "full_s", "at most", row["target_s"])
    return report.finish(FIGURES)
