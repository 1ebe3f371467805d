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

import math
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from app.local.processes import START_S, wait_ready
from app.local.waiting import WaitError, wait_until
from benchmarks.arguments import POOLS, add_systems, gates, positive
from benchmarks.arrivals import Arrivals
from benchmarks.chaos.checker import runs_of
from benchmarks.chaos.fleet import ALONE, KEEPS_ITS_DATA, RecordedFleet
from benchmarks.fleet import KEYS, RATIO, Variant

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from benchmarks.chaos.checker import Run
    from benchmarks.report import Report

SUMMARY = "time to the whole work after a crash, a mass crash, an outage of Redis, beside plain Celery"
FIGURES = ("system", "case", "counted_from", "cut_off", "start_s", "full_s", "target_s")
PODS, GONE_AT_ONCE = 6, 2
TASK_S = 0.5
OUTAGE_S = 10.0
WINDOW_S = 1.5
FULL = 0.9
QUEUED = 300
DEATH_S = 2.0
"""Beyond the TTL, until what a dead pod held runs elsewhere."""
REDIS_S = 5.0
"""From the return of Redis."""
LOOK_BACK_S = 20 * TASK_S
"""A run that began so long ago is over; where it has no end, an earlier blow cut it off."""
PATIENCE = 4
"""So many TTLs, and the outage, are waited for a recovery that does not come."""


class Blow(NamedTuple):
    """What was done to the fleet, with the times of this machine's clock."""

    from_s: float
    """Recovery is counted from here."""
    over_s: float
    """When nothing of the victims was left."""
    victims: tuple[str, ...] = ()
    gone: int = 0
    """So many pods stay away."""
    start_s: float | None = None


class Case(NamedTuple):
    """One way to fail."""

    strike: Callable[[RecoveryFleet], Blow]
    counted_from: str
    ttls: float = 0.0
    more_s: float = 0.0

    def target_s(self, ttl_s: float) -> float:
        """Within so many seconds."""
        return self.ttls * ttl_s + self.more_s


class RecoveryFleet(RecordedFleet):
    """Six pods under a queue that does not run dry."""

    def __init__(self, gate: str, pool: str, ttl_s: float) -> None:
        """With the brake at ``gate``, or as plain Celery with a visibility timeout as long as the TTL."""
        timeout_s = math.ceil(ttl_s)
        variant = Variant(
            gate, pool=pool, ttl_s=ttl_s, visibility_timeout_s=timeout_s, arguments=ALONE, server=KEEPS_ITS_DATA
        )
        super().__init__(variant, PODS)

    def prepare(self) -> None:
        """Have all pods there, the queue long, and everybody at work."""
        missing = [f"pod-{number}" for number in range(1, PODS + 1) if not self._runs(f"pod-{number}")]
        for name in missing:
            self.start_pod(name)
        wait_ready(self.pods.values())
        if self.variant.gate:
            wait_until(lambda: self.broker.zcard(KEYS.alive()) == PODS, what="all pods to be counted")
        for _ in range(QUEUED - self.queued()):
            self.send("work", TASK_S)
        wait_until(lambda: len(self.working()) >= self.places(0), what="everybody to be at work")

    def places(self, gone: int) -> int:
        """How many tasks may run at once when so many pods are gone."""
        living = PODS - gone
        return max(1, math.floor(RATIO * living)) if self.variant.gate else living

    def working(self) -> list[str]:
        """The pods that run a task now, the one that began last first."""
        since_s = time.time() - 2 * TASK_S  # an older one was cut off by an earlier blow
        runs = [run for its in runs_of(self.told()).values() for run in its]
        now = [run for run in runs if run.to_s is None and run.from_s > since_s and self._runs(run.pod)]
        return list(dict.fromkeys(run.pod for run in sorted(now, key=lambda run: -run.from_s)))

    def kill(self, count: int) -> Blow:
        """Kill so many working pods at once, those that have just begun."""
        victims = tuple(self.working()[:count])
        from_s = time.time()
        for name in victims:
            self.pods[name].send(signal.SIGKILL)
        for name in victims:
            self.pods[name].wait()
        return Blow(from_s, time.time(), victims, gone=count)

    def _runs(self, name: str) -> bool:
        return name in self.pods and self.pods[name].running


# ---------------------------------------------------------------- the blows


def crash(fleet: RecoveryFleet, count: int = 1) -> Blow:
    """Kill working pods, which stay away."""
    return fleet.kill(count)


def restart(fleet: RecoveryFleet) -> Blow:
    """Kill a working pod and start it at once under its name; returns when it has returned."""
    with Arrivals(fleet.broker) as arrivals:
        blow = fleet.kill(1)
        (victim,) = blow.victims
        pod = fleet.start_pod(victim)
        if fleet.variant.gate:
            wait_until(lambda: arrivals.first_of(victim), START_S, what=f"{victim} to ask to join")
        else:
            wait_ready([pod])
        from_s = arrivals.first_of(victim) or time.time()
    return blow._replace(from_s=from_s, gone=0, start_s=round(from_s - blow.from_s, 2))


def redis_frozen(fleet: RecoveryFleet) -> Blow:
    """Have Redis answer nobody for a while."""
    fleet.server.process.pause()
    time.sleep(OUTAGE_S)
    fleet.server.process.resume()
    return Blow(time.time(), time.time())


def redis_restarted(fleet: RecoveryFleet) -> Blow:
    """Kill Redis, and start it with its data after a while."""
    fleet.server.kill()
    time.sleep(OUTAGE_S)
    fleet.server.start()
    return Blow(time.time(), time.time())


CASES = {
    "crash": Case(crash, "the kill", ttls=1, more_s=DEATH_S),
    "restart": Case(restart, "its return", ttls=1 / 3),
    "third": Case(partial(crash, count=GONE_AT_ONCE), "the kill", ttls=1, more_s=DEATH_S),
    "redis-frozen": Case(redis_frozen, "its return", more_s=REDIS_S),
    "redis-restarted": Case(redis_restarted, "its return", more_s=REDIS_S),
}


# ---------------------------------------------------------------- the measure


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
        at_s = wait_until(found, PATIENCE * fleet.variant.ttl_s + OUTAGE_S, every_s=0.2)
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
