"""What is lost when workers are killed: Headroom at both of its gates, and plain Celery set up as safely as it can be.

A trickle of short tasks, and every 0.5 to 0.9 s a random worker that consumes is killed by SIGKILL
with its whole process group and started again under its name, as a node that runs out of memory
does it. Then everything is left to settle, and what the producer sent is compared with what the
tasks themselves recorded; nothing is asked of either system but what its queues still hold.

Plain Celery runs with acks_late, reject_on_worker_lost and a visibility timeout of a few seconds
with a sweep every second, so that it has every chance to restore. What it loses nevertheless went
between the BRPOP that removes a message and the second command that files it. Headroom's other gate
(``requeue``) stands behind that same BRPOP: it keeps the rule, and shares the loss.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from app.local.judge import Published
from benchmarks.arguments import add_fleet, add_systems, gates, whole
from benchmarks.fleet import Fleet, Variant
from benchmarks.workload import NORMAL

if TYPE_CHECKING:
    import argparse

    from benchmarks.report import Report

SUMMARY = "what is lost when workers are killed, beside plain Celery"
FIGURES = (
    "kills", "published", "completed", "doubled", "dead_lettered", "left", "lost", "violations", "requeues",
    "settled_s",
)  # fmt: skip
KILL_EVERY_S = (0.5, 0.9)
TASK_S = (0.0, 0.02)
# Long enough for a death to be noticed (a TTL of 3 s, or a visibility timeout of 5 s and a sweep), with as much again.
STILL_S = 12.0
SETTLE_S = 90.0
TTL_S = 3.0
VISIBILITY_TIMEOUT_S = 5
JOURNAL = 10_000_000
# A worker that starts alone need not wait for answers of its neighbours; both systems start so.
ALONE = ("--without-mingle", "--without-gossip")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    add_systems(parser)
    parser.add_argument("--kills", type=whole, default=40, help="SIGKILLs for each system (40)")
    add_fleet(parser, rate=120.0)


def run(options: argparse.Namespace, report: Report) -> int:
    """Run one system after the other, under the same kills."""
    seed = random.randrange(2**32)
    for gate in gates(options):
        row = measure(options, report, gate=gate, random_=random.Random(seed))
        report.add(row)
        if gate == "take":
            report.expect(row, "lost", "exactly", 0)
            report.expect(row, "left", "exactly", 0)
        if gate:
            report.expect(row, "violations", "exactly", 0)
    return report.finish(FIGURES, heads=("system",))


def measure(options: argparse.Namespace, report: Report, *, gate: str, random_: random.Random) -> dict[str, Any]:
    """One system: the trickle under fire, the settling, the count."""
    variant = Variant(
        gate,
        pool=options.pool,
        ttl_s=TTL_S,
        visibility_timeout_s=VISIBILITY_TIMEOUT_S,
        journal=JOURNAL if gate else 0,
        arguments=ALONE,
    )
    report.progress(f"{variant.system}: starting {options.pods} pods")
    with Fleet(variant, options.pods) as fleet:
        published = _fire(options, report, fleet, random_)
        report.progress(f"{variant.system}: {len(published)} published; waiting until nothing moves any more")
        settled_s = settle(report, fleet)
        times = Counter(done.task for done in fleet.runs())
        left, dead = fleet.remaining(), fleet.dead_letters()
        violations = len(fleet.verdict(published).violations) if gate else None
        requeues = fleet.put_back() if gate else None
    tasks = [message.task for message in published]
    return {
        "system": variant.system,
        "pool": options.pool,
        "kills": options.kills,
        "published": len(tasks),
        "completed": sum(task in times for task in tasks),
        "doubled": sum(count > 1 for count in times.values()),
        "dead_lettered": len(dead),
        "left": len(left),
        "lost": len(set(tasks) - set(times) - dead - left),
        "violations": violations,
        "requeues": requeues,
        "settled_s": settled_s,
    }


def _fire(options: argparse.Namespace, report: Report, fleet: Fleet, random_: random.Random) -> list[Published]:
    """Publish at the given rate while pods are killed; returns what was published."""
    published: list[Published] = []
    began_s = time.monotonic()
    next_kill_s, kills = began_s + random_.uniform(*KILL_EVERY_S), 0
    while kills < options.kills:
        now_s = time.monotonic()
        while len(published) < (now_s - began_s) * options.rate:
            at_s = time.time()
            published.append(Published(fleet.send("rest", random_.uniform(*TASK_S)), NORMAL, at_s))
        ready = fleet.ready() if now_s >= next_kill_s else []
        if ready:
            victim = random_.choice(ready)
            fleet.pods[victim].kill()
            fleet.start_pod(victim)
            kills += 1
            next_kill_s = now_s + random_.uniform(*KILL_EVERY_S)
            if kills % 10 == 0:
                report.progress(
                    f"{fleet.variant.system}: {kills} kills, {len(published)} published, {fleet.done()} done, "
                    f"{fleet.queued()} queued"
                )
        time.sleep(0.002)
    return published


def settle(report: Report, fleet: Fleet) -> float:
    """Wait until nothing is queued or held; or nothing has moved for so long that nothing will. Returns the seconds."""
    began_s = moved_s = reported_s = time.monotonic()
    seen = (-1, -1)
    while True:
        now_s = time.monotonic()
        left, done = fleet.queued() + fleet.held(), fleet.done()
        if (left, done) != seen:
            seen, moved_s = (left, done), now_s
        # An empty fleet is looked at once more: a task may have been between two places that are counted one by one.
        if (left == 0 and now_s - moved_s > 1.0) or now_s - moved_s > STILL_S or now_s - began_s > SETTLE_S:
            return round(moved_s - began_s, 1)
        if now_s - reported_s > 5:  # noqa: PLR2004 - seconds between two lines
            reported_s = now_s
            report.progress(f"{fleet.variant.system}: {left} queued or held, {done} done")
        time.sleep(0.05)
