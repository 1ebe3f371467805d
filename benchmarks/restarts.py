"""What restarts cost under load: by SIGTERM, by SIGKILL, and a rolling restart of the whole fleet, beside plain Celery.

A trickle of tasks that take some time each, and one random worker after another is stopped and started again under its
name: by SIGTERM to its first process, as Kubernetes does, its end awaited; or by SIGKILL to all of it. `rolling`
restarts every worker once, in turn, the next one when the last is up again. Then everything settles and is counted.

redone     beginnings that were cut off, of tasks that began again and came to their end: work that was done anew
doubled    tasks that came to their end more than once; after a SIGKILL a task that had ended and was not acknowledged
ended_bad  workers that did not end with 0 at their SIGTERM
wait_ms    from the publication of a task to the beginning of its first run that came to its end
up         pods that consumed, on average while there were restarts: a pod that was killed needs seconds to start

Systems other than Headroom are restarted for `--limit` seconds at most; `restarts` says how often that was.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from app.local.judge import Published
from benchmarks.arguments import add_fleet, add_systems, gates, positive, whole
from benchmarks.fleet import Fleet, Variant
from benchmarks.loss import ALONE, JOURNAL, TTL_S, VISIBILITY_TIMEOUT_S, settle
from benchmarks.workload import NORMAL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from benchmarks.report import Report

SUMMARY = "restarts under load: SIGTERM, SIGKILL, and the whole fleet in turn"
FIGURES = (
    "restarts", "up", "published", "completed", "redone", "doubled", "lost", "left", "violations", "ended_bad",
    "wait_p50_ms", "wait_p99_ms", "settled_s",
)  # fmt: skip
TASK_S = (0.02, 0.2)
PAUSE_S = (0.1, 0.4)
END_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    add_systems(parser)
    parser.add_argument("--count", type=whole, default=20, help="restarts of each kind, for each system (20)")
    parser.add_argument("--limit", type=positive, default=120.0, help="seconds of restarts of another system (120)")
    add_fleet(parser, rate=15.0)


def run(options: argparse.Namespace, report: Report) -> int:
    """One system after the other, each kind on a new fleet."""
    for gate in gates(options):
        for how in ("sigterm", "sigkill", "rolling"):
            row = measure(options, report, gate=gate, how=how)
            report.add(row)
            if gate == "take":
                for name in ("lost", "left", "violations", "ended_bad", *(["doubled"] if how != "sigkill" else [])):
                    report.expect(row, name, "exactly", 0)
    return report.finish(FIGURES, heads=("system", "how"))


def measure(options: argparse.Namespace, report: Report, *, gate: str, how: str) -> dict[str, Any]:
    """One system under one kind of restart."""
    variant = Variant(
        gate,
        pool=options.pool,
        ttl_s=TTL_S,
        visibility_timeout_s=VISIBILITY_TIMEOUT_S,
        journal=JOURNAL if gate else 0,
        arguments=ALONE,
    )
    report.progress(f"{variant.system}, {how}: starting {options.pods} pods")
    with Fleet(variant, options.pods) as fleet:
        victims = sorted(fleet.pods) if how == "rolling" else [""] * options.count
        published: list[Published] = []
        codes: list[int] = []
        up: list[int] = []
        give_up_s = time.monotonic() + (options.limit if gate != "take" else math.inf)
        for _ in _trickle(fleet, options.rate, published, lambda: _restart(fleet, victims, how, codes)):
            up.append(len(fleet.ready()))
            if time.monotonic() > give_up_s:
                break
        settled_s = settle(report, fleet)
        begun, runs, left, dead = fleet.begun(), fleet.runs(), fleet.remaining(), fleet.dead_letters()
        violations = len(fleet.verdict(published).violations) if gate else None
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
        "restarts": len(codes),
        "up": round(statistics.fmean(up), 1),
        "published": len(tasks),
        "completed": len(tasks & set(times)),
        "redone": sum(task in times for task in begun) - len(runs),
        "doubled": sum(count > 1 for count in times.values()),
        "lost": len(tasks - set(times) - dead - left),
        "left": len(left),
        "violations": violations,
        "ended_bad": sum(code != 0 for code in codes),
        "wait_p50_ms": round(cuts[49]),
        "wait_p99_ms": round(cuts[98]),
        "settled_s": settled_s,
    }


def _trickle(
    fleet: Fleet, rate: float, published: list[Published], restart: Callable[[], Iterator[None]]
) -> Iterator[None]:
    """Publish at the given rate for as long as there are restarts."""
    start_s = time.monotonic()
    for _ in restart():
        while len(published) < (time.monotonic() - start_s) * rate:
            at_s = time.time()
            published.append(Published(fleet.send("told", random.uniform(*TASK_S)), NORMAL, at_s))
        time.sleep(0.005)
        yield


def _restart(fleet: Fleet, victims: list[str], how: str, codes: list[int]) -> Iterator[None]:
    """Restart them one after the other ('' is any that is up); yields while it waits."""
    for named in victims:
        yield from _until(lambda named=named: fleet.ready() if not named else len(fleet.ready()) == len(fleet.pods))
        victim = named or random.choice(fleet.ready())
        pod = fleet.pods[victim]
        if how == "sigkill":
            pod.kill()
            codes.append(0)
        else:
            pod.terminate()
            yield from _until(lambda pod=pod: not pod.running)
            codes.append(pod.wait(1.0))
        fleet.start_pod(victim)
        pause_s = time.monotonic() + random.uniform(*PAUSE_S)
        yield from _until(lambda pause_s=pause_s: time.monotonic() > pause_s)
    yield from _until(lambda: len(fleet.ready()) == len(fleet.pods))


def _until(condition: Callable[[], object]) -> Iterator[None]:
    give_up_s = time.monotonic() + END_S
    while not condition():
        if time.monotonic() > give_up_s:
            message = f"a pod took longer than {END_S:g} s to end, or to come up again"
            raise TimeoutError(message)
        yield
