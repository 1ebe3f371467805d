"""Chaos from a seed: kills, frost, bad networks, restarts of Redis and of pods, poison, under steady work.

A fleet of 1 to 12 pods on all four pools, whose size changes all the time, works on short and long tasks in both lanes,
on tasks that are due later, that ask to be run again, that fail and that kill their process. Meanwhile the schedule of
the seed is carried out (``benchmarks/chaos/schedule.py``). Then the chaos stops, everything is done that was accepted,
the fleet is looked at while it is idle and once more when every pod has left.

| figure | meaning, and what it must be |
|---|---|
| lost | accepted, and neither done nor dead-lettered nor left: 0 |
| left | still queued, held or parked though the fleet is well again: 0 |
| violations | admissions against the rule, and operations that must have had no effect, by replay of the journal: 0 |
| leaked_slots | slots occupied by a pod that holds nothing, the most at any look, and at the end: 0 |
| leaked_keys | keys (and fields named after pods) that should not be there, idle and after all have left: 0 |
| doubled | done more than once |
| unexplained | of these: no run's pod was killed or silent at the time: 0 |
| condemned | dead letters that were no poison: their pods died over them as often as is allowed |
| spared | poisons and unreadable messages that did not become dead letters: 0 |
| deaf | pods that do not wait for work in the idle fleet: 0 |
| crashes | processes that ended though nothing ended them, or did not end when asked: 0 |
| rss_growth_mb | memory, of the process that grew most, in the second half of its life |
| open_files_growth | likewise its open files |

The last two bind in a soak of ten minutes or more: under chaos a worker meets its first retry, its first reconnect and
its first full load one after the other for minutes, and each of them costs memory once, without the brake as well.

The seed decides everything but the machine's own pace. A fault prints the seed, the story of each task concerned, and
the folder in which logs, journal and records are kept.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from benchmarks.arguments import positive, whole
from benchmarks.chaos.checker import KILLS, check
from benchmarks.chaos.course import Course
from benchmarks.chaos.fleet import ChaosFleet
from benchmarks.chaos.story import Story

if TYPE_CHECKING:
    import argparse

    from app.local.judge import Verdict
    from benchmarks.chaos.checker import Findings
    from benchmarks.report import Report

SUMMARY = "chaos from a seed: what is lost, doubled, leaked; what grows"
FIGURES = (
    "seed", "minutes", "tasks", "kills", "deeds", "pods_started", "lost", "left", "violations", "leaked_slots",
    "leaked_keys", "doubled", "unexplained", "condemned", "spared", "deaf", "crashes", "rss_growth_mb",
    "open_files_growth", "drained_s",
)  # fmt: skip
NONE_OF = (
    "lost", "left", "violations", "leaked_slots", "leaked_keys", "unexplained", "spared", "deaf", "crashes",
)  # fmt: skip
TTL_S = 4.0
SURVIVED_S = 60.0
"""A process of whose life the second half was so long (in a short soak a fifth of it) says whether it grows."""
RSS_MB = 5.0
OPEN_FILES = 3.0
WARM_MINUTES = 10.0
TOLD = 4
"""So many tasks of each kind of fault are told."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    parser.add_argument("--minutes", type=positive, default=2.0, help="of chaos (2)")
    parser.add_argument("--seed", type=whole, default=None, help="of the chaos; by default another one each time")
    parser.add_argument("--rate", type=positive, default=45.0, help="messages a second in the busy times (45)")


def run(options: argparse.Namespace, report: Report) -> int:
    """One soak."""
    seed = options.seed or random.randrange(1, 1_000_000)
    again = f"./run bench soak --minutes {options.minutes:g} --seed {seed}"
    report.progress(f"seed {seed}; the same again: {again}")
    with ChaosFleet(seed, TTL_S) as fleet:
        course = Course(fleet, report, seed=seed, seconds=options.minutes * 60, rate=options.rate)
        course.chaos()
        course.rest()
        course.leave()
        row = {"system": "headroom", "seed": seed, "minutes": options.minutes, **result(fleet, course, report)}
    report.add(row)
    for name in NONE_OF:
        report.expect(row, name, "exactly", 0)
    long = options.minutes >= WARM_MINUTES
    report.expect(row, "rss_growth_mb", "at most", RSS_MB, binding=long)
    report.expect(row, "open_files_growth", "at most", OPEN_FILES, binding=long)
    return report.finish(FIGURES, heads=("seed",))


def result(fleet: ChaosFleet, course: Course, report: Report) -> dict[str, Any]:
    """The figures; what is wrong is told, and everything about it kept."""
    traffic, hands = course.traffic, course.hands
    remaining = fleet.remaining()
    findings = check(
        accepted=[message.task for message in traffic.published],
        poisons=traffic.poisons,
        garbage=traffic.garbage,
        retried=traffic.retried,
        records=fleet.told(),
        dead=[letter["raw"] for letter in fleet.dead()],
        remaining=remaining,
        harms=hands.harms,
        ttl_s=TTL_S,
    )
    verdict = fleet.verdict(traffic.published)
    survivors = course.growth.grown(min(SURVIVED_S, course.seconds / 5))
    for grown in survivors[-TOLD:]:
        report.progress(f"{grown.name}: {grown.rss_mb:+.2f} MB, {grown.files:+.2f} files in {grown.seconds:g} s")
    row: dict[str, Any] = {
        "tasks": len(traffic.published),
        "doubtful": len(traffic.doubtful),
        "refusals": dict(traffic.errors),
        "kills": sum(harm.kind in KILLS for harm in hands.harms),
        "deeds": sum(hands.counts.values()),
        "by_kind": dict(sorted(hands.counts.items())),
        "pods_started": fleet.started,
        "lost": len(findings.lost),
        "left": len(remaining),
        "violations": len(verdict.violations) + len(verdict.contradictions),
        "leaked_slots": course.hollow,
        "leaked_keys": len(course.leaked),
        "doubled": len(findings.explained) + len(findings.unexplained),
        "explained": len(findings.explained),
        "explanations": dict(Counter(findings.explained.values())),
        "unexplained": len(findings.unexplained),
        "condemned": len(findings.condemned),
        "spared": len(findings.spared),
        "deaf": course.deaf,
        "crashes": len(hands.crashes) + len(hands.stuck),
        "survivors": len(survivors),
        "rss_growth_mb": max((grown.rss_mb for grown in survivors), default=None),
        "open_files_growth": max((grown.files for grown in survivors), default=None),
        "drained_s": course.drained_s,
    }
    if any(row[name] for name in NONE_OF):
        report.progress(f"FAULT with seed {course.seed}")
        tell(fleet, course, report, findings, verdict)
    return row


def tell(fleet: ChaosFleet, course: Course, report: Report, findings: Findings, verdict: Verdict) -> None:
    """Say what is wrong, with the story of the tasks concerned."""
    stories = Story(
        began_s=course.began_s,
        published=course.traffic.published,
        records=fleet.told(),
        journal=fleet.journal(),
        harms=course.hands.harms,
    )
    told = {"lost": findings.lost, "left": sorted(fleet.remaining()), "unexplained": findings.unexplained}
    told |= {"spared": findings.spared, "condemned": findings.condemned}
    for name, tasks in told.items():
        for task in tasks[:TOLD]:
            report.progress(f"{name}: " + "\n  ".join(stories.of(task)))
    for found in (*verdict.violations, *verdict.contradictions)[:TOLD]:
        at_s = found.at_ms / 1000 - course.began_s
        report.progress(f"violation at {at_s:.3f} s: {found.member}, take {found.take}: {found.reason}")
    for line in (*course.leaked, *course.hands.crashes, *course.hands.stuck):
        report.progress(line)
    report.progress(f"everything is kept in {stories.keep(course.seed, fleet.folder, course.deeds)}")
