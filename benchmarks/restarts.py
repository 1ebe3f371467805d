"""What restarts cost under load: by SIGTERM, by SIGKILL, and a rolling restart of the whole fleet, beside plain Celery.

A trickle of tasks that take some time each, and one random worker after another is stopped and started again under its
name: by SIGTERM to its first process, as Kubernetes does, and anew when it has ended; or by SIGKILL to all of it. The
next one is stopped when `--least` workers consume, all but one unless it is said. With `--least 1` whatever comes up is
stopped at once, and hardly anything is left to work. `rolling` replaces every worker once, as a Deployment does with
maxSurge 1 and maxUnavailable 0: a new one first, and when that consumes, SIGTERM to an old one. Then all settles and is
counted.

up             workers that consumed while there were restarts, on average: one that was killed needs seconds to start
capacity       the least number of workers that normal work was allowed on, of all that a take saw
redone         beginnings that were cut off, of tasks that began again and came to their end: work that was done anew
doubled        tasks that came to their end more than once: after a SIGKILL one that had ended, but was not acknowledged
dead_lettered  put aside after `THROTTLE_MAX_DELIVERIES` workers were lost over it; no task here is to blame for that.
               It must be none where a majority works; who kills faster than tasks end makes some, and is shown how many
left           delivered to nobody when nothing moved any more; plain Celery waits for its visibility timeout of an hour
ended_bad      workers that did not end with 0 at their SIGTERM
wait_ms        from the publication of a task to the beginning of its first run that came to its end

Systems other than Headroom are restarted for `--limit` seconds at most; `restarts` says how often that was.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.local.judge import Published
from benchmarks.arguments import add_fleet, add_systems, gates, positive, whole
from benchmarks.fleet import RATIO, Fleet, Variant
from benchmarks.loss import ALONE, JOURNAL, TTL_S, settle
from benchmarks.workload import NORMAL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from app.local.guard import Process
    from benchmarks.report import Report

SUMMARY = "restarts under load: SIGTERM, SIGKILL, and the whole fleet in turn, beside plain Celery"
FIGURES = (
    "restarts", "up", "capacity", "published", "completed", "redone", "doubled", "dead_lettered", "lost", "left",
    "violations", "ended_bad", "wait_p50_ms", "wait_p99_ms", "settled_s",
)  # fmt: skip
KINDS = ("sigterm", "sigkill", "rolling")
TASK_S = (0.02, 0.2)
PAUSE_S = (0.1, 0.4)
END_S = 60.0
SAMPLE_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    add_systems(parser)
    parser.add_argument("--how", choices=KINDS, action="append", help="this kind alone (all); may be repeated")
    parser.add_argument("--count", type=whole, default=20, help="restarts of each kind, for each system (20)")
    parser.add_argument("--least", type=whole, help="workers that consume when the next is stopped (all but one)")
    parser.add_argument("--limit", type=positive, default=120.0, help="seconds of restarts of another system (120)")
    add_fleet(parser, rate=15.0)


def run(options: argparse.Namespace, report: Report) -> int:
    """One system after the other, each kind on a new fleet."""
    for gate in gates(options):
        for how in (how for how in KINDS if how in (options.how or KINDS)):
            row = measure(options, report, gate=gate, how=how)
            report.add(row)
            if gate == "take":
                _expect(options, report, row)
    return report.finish(FIGURES, heads=("system", "how"))


def _expect(options: argparse.Namespace, report: Report, row: dict[str, Any]) -> None:
    """What is promised of the brake at the take."""
    none = ["lost", "left", "violations", "ended_bad"]
    if row["how"] != "sigkill":
        none += ["doubled"]
    if row["how"] != "sigkill" or _least(options) > options.pods // 2:
        none += ["dead_lettered"]
    for name in none:
        report.expect(row, name, "exactly", 0)
    if row["how"] == "rolling":
        report.expect(row, "capacity", "at least", max(1, math.floor(RATIO * options.pods)))


def _least(options: argparse.Namespace) -> int:
    return min(options.least or max(1, options.pods - 1), options.pods)


@dataclass
class Restarts:
    """The restarts of one kind, and what was seen of the fleet meanwhile."""

    fleet: Fleet
    how: str
    count: int
    least: int
    """Workers that consume when the next one is stopped."""
    give_up_s: float
    """No further one after this."""
    codes: list[int] = field(default_factory=list[int])
    up: list[int] = field(default_factory=list[int])
    _ending: dict[str, Process] = field(default_factory=dict[str, "Process"])

    def serving(self) -> list[str]:
        """Workers that consume, and were not told to end."""
        return [name for name in self.fleet.ready() if name not in self._ending]

    def sample(self) -> None:
        """Note how many consume now."""
        self.up.append(len(self.serving()))

    def steps(self) -> Iterator[None]:
        """Restart one after the other, until all are up again; yields while it waits."""
        pods = sorted(self.fleet.pods)
        for number in range(len(pods) if self.how == "rolling" else self.count):
            if time.monotonic() > self.give_up_s:
                break
            if self.how == "rolling":
                self.fleet.start_pod(f"pod-{len(pods) + 1 + number}")
                yield from self._until(lambda: len(self.serving()) > len(pods))
                self._stop(pods[number])
            else:
                yield from self._until(lambda: len(self.serving()) >= self.least)
                self._stop(random.choice(self.serving()))
            pause_s = time.monotonic() + random.uniform(*PAUSE_S)
            yield from self._until(lambda pause_s=pause_s: time.monotonic() > pause_s)
        yield from self._until(lambda: len(self.serving()) == len(self.fleet.pods))

    def _stop(self, name: str) -> None:
        if self.how == "sigkill":
            self.fleet.pods[name].kill()
            self.codes.append(0)
            self.fleet.start_pod(name)
        else:
            self._ending[name] = self.fleet.pods[name]
            self.fleet.pods[name].terminate()

    def _until(self, condition: Callable[[], object]) -> Iterator[None]:
        """Wait, and see to those that were told to end meanwhile."""
        give_up_s = time.monotonic() + END_S
        while True:
            for name in [name for name, pod in self._ending.items() if not pod.running]:
                self.codes.append(self._ending.pop(name).wait(1.0))
                del self.fleet.pods[name]
                if self.how != "rolling":
                    self.fleet.start_pod(name)
            if condition():
                return
            if time.monotonic() > give_up_s:
                message = f"a pod took longer than {END_S:g} s to end, or to come up again"
                raise TimeoutError(message)
            yield


def measure(options: argparse.Namespace, report: Report, *, gate: str, how: str) -> dict[str, Any]:
    """One system under one kind of restart."""
    variant = Variant(gate, pool=options.pool, ttl_s=TTL_S, journal=JOURNAL if gate else 0, arguments=ALONE)
    report.progress(f"{variant.system}, {how}: starting {options.pods} pods")
    with Fleet(variant, options.pods) as fleet:
        give_up_s = time.monotonic() + options.limit if gate != "take" else math.inf
        restarts = Restarts(fleet, how, options.count, _least(options), give_up_s)
        published = _trickle(fleet, options.rate, restarts)
        settled_s = settle(report, fleet)
        begun, runs, left, dead = fleet.begun(), fleet.runs(), fleet.remaining(), fleet.dead_letters()
        violations = len(fleet.verdict(published).violations) if gate else None
        capacity = min(fleet.capacities(), default=None) if gate else None
    began_s: dict[str, float] = {}
    for each in runs:
        began_s[each.task] = min(each.began_s, began_s.get(each.task, each.began_s))
    waits_ms = [(began_s[m.task] - m.at_s) * 1000 for m in published if m.task in began_s]
    cuts = statistics.quantiles(waits_ms, n=100, method="inclusive")
    tasks, times = {message.task for message in published}, Counter(each.task for each in runs)
    return {
        "system": variant.system,
        "how": how,
        "pool": options.pool,
        "restarts": len(restarts.codes),
        "up": round(statistics.fmean(restarts.up), 1),
        "capacity": capacity,
        "published": len(tasks),
        "completed": len(tasks & set(times)),
        "redone": sum(task in times for task in begun) - len(runs),
        "doubled": sum(count > 1 for count in times.values()),
        "dead_lettered": len(dead),
        "lost": len(tasks - set(times) - dead - left),
        "left": len(left),
        "violations": violations,
        "ended_bad": sum(code != 0 for code in restarts.codes),
        "wait_p50_ms": round(cuts[49]),
        "wait_p99_ms": round(cuts[98]),
        "settled_s": settled_s,
    }


def _trickle(fleet: Fleet, rate: float, restarts: Restarts) -> list[Published]:
    """Publish at the given rate for as long as there are restarts; returns what was published."""
    published: list[Published] = []
    start_s = sampled_s = time.monotonic()
    for _ in restarts.steps():
        now_s = time.monotonic()
        while len(published) < (now_s - start_s) * rate:
            at_s = time.time()
            published.append(Published(fleet.send("told", random.uniform(*TASK_S)), NORMAL, at_s))
        if now_s >= sampled_s:
            restarts.sample()
            sampled_s = now_s + SAMPLE_S
        time.sleep(0.005)
    return published
