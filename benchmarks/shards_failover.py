"""A pod that holds shards is killed (SIGKILL): how long its shards are away, and what it costs.

Its shards are free when its lease is over (`--ttl`); the others find that within a look, claim them and resume the
sessions, so that nothing is lost and Discord counts no identify. Repeated; a new pod takes the dead one's place each
time, and shards move to it by hand-over (those gaps are in `gap_p50_ms`).

Beside it stands what a bot without a cluster does: one process for each pod's share of shards, started again at once
by its supervisor, which knows of no session and identifies.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from app.local.discord import checker
from app.local.processes import wait_ready
from app.local.waiting import wait_until
from benchmarks import bot, plain_bot
from benchmarks.arguments import whole

if TYPE_CHECKING:
    import argparse

    from benchmarks.report import Report

SUMMARY = "a pod that holds shards is killed: time to RESUMED elsewhere, lost events, identifies"
WITHIN_S = 3.0
"""Beside the TTL: a look, a claim, a connection."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    bot.add_arguments(parser)
    parser.add_argument("--kills", type=whole, default=3, help="how many pods, one after the other (3)")


def run(options: argparse.Namespace, report: Report) -> int:
    """Both systems, one after the other; the same deeds to each."""
    for system, measure in (("headroom", cluster), ("plain", plain)):
        report.progress(f"{system}: starting")
        row, taken_ms = measure(options, report)
        taken_ms.sort()
        for name, part in (("takeover_p50_ms", 0.5), ("takeover_p95_ms", 0.95), ("takeover_ms", 1.0)):
            row[name] = checker.share(taken_ms, part)
        row["system"] = system
        report.add(row)
        if system == "headroom":
            bot.expect_exact(report, row, identifies=0)
            report.expect(row, "takeover_p95_ms", "at most", (options.ttl + WITHIN_S) * 1000, binding=False)
    return report.finish((*bot.FIGURES, "takeover_p50_ms", "takeover_p95_ms", "takeover_ms"), heads=("system",))


def cluster(options: argparse.Namespace, report: Report) -> tuple[dict[str, Any], list[float]]:
    """Kill a pod, wait, put another in its place."""
    with bot.BotRun(options, report) as run_:
        run_.prepare()
        taken_ms: list[float] = []
        for number in range(1, options.kills + 1):
            name, at_s = f"pod-{number}", run_.discord.now_s()
            shards = run_.held_by(name)
            run_.pods[name].kill()
            taken_ms += back(run_, shards, at_s, "resumed")
            report.progress(f"{name} killed: its {len(shards)} shards are back")
            wait_ready([run_.add_pod(f"pod-{options.pods + number}")])
            run_.wait_settled(options.shards)
        return run_.row("kill"), taken_ms


def plain(options: argparse.Namespace, report: Report) -> tuple[dict[str, Any], list[float]]:
    """Kill a process, and start it again at once."""
    with bot.BotRun(options, report) as run_:
        run_.start_surroundings()
        each = -(-options.shards // options.pods)
        shares = [(first, min(first + each, options.shards) - 1) for first in range(0, options.shards, each)]
        run_.pods = {
            f"plain-{number}": plain_bot.start(
                run_, number, *share, total=options.shards, stagger_s=plain_bot.SPACING_S
            )
            for number, share in enumerate(shares, start=1)
        }
        back(run_, set(range(options.shards)), 0.0, "settled")
        run_.discord.load(options.rate)
        time.sleep(2.0)
        run_.begin()
        taken_ms: list[float] = []
        for number, share in list(enumerate(shares, start=1))[: options.kills]:
            at_s, name = run_.discord.now_s(), f"plain-{number}"
            run_.pods[name].kill()
            run_.pods[name] = plain_bot.start(run_, number, *share, total=options.shards)
            taken_ms += back(run_, set(range(share[0], share[1] + 1)), at_s, "settled")
            report.progress(f"{name} killed: its shards are back")
        return run_.row("kill"), taken_ms


def back(run_: bot.BotRun, shards: set[int], since_s: float, kind: str) -> list[float]:
    """Wait until each of these shards is served again; for each the ms that took."""
    times = wait_until(lambda: run_.times_of(kind, shards, since_s), 90.0, what=run_.last_words, every_s=0.2)
    return [round((time_s - since_s) * 1000, 1) for time_s in times.values()]
