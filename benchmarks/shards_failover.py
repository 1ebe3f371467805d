"""A pod that holds shards is killed (SIGKILL): how long its shards are away, and what it costs.

Its shards are free when its lease is over (`--ttl`); the others find that within a look, claim them and resume the
sessions, so that nothing is lost and Discord counts no identify. Repeated; a new pod takes the dead one's place each
time, and shards move to it by hand-over (those gaps are in `gap_p50_ms`).

Beside it stands what a bot without a cluster does: one process for each pod's share of shards, started again at once
by its supervisor, which knows of no session and identifies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.local.processes import wait_ready
from app.local.waiting import wait_until
from benchmarks import bot
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
    """Kill, wait, replace; then weigh."""
    with bot.BotRun(options, report) as cluster:
        cluster.prepare()
        taken_ms: list[float] = []
        for number in range(1, options.kills + 1):
            taken_ms += kill(cluster, f"pod-{number}", report)
            wait_ready([cluster.add_pod(f"pod-{options.pods + number}")])
            cluster.wait_settled(options.shards)
        row = cluster.row("kill")
    taken_ms.sort()
    row["takeover_p50_ms"] = taken_ms[len(taken_ms) // 2]
    row["takeover_p95_ms"] = taken_ms[int(len(taken_ms) * 0.95)]
    row["takeover_ms"] = taken_ms[-1]
    report.add(row)
    bot.expect_exact(report, row, identifies=0)
    report.expect(row, "takeover_p95_ms", "at most", (options.ttl + WITHIN_S) * 1000, binding=False)
    return report.finish((*bot.FIGURES, "takeover_p50_ms", "takeover_p95_ms", "takeover_ms"), heads=("case",))


def kill(cluster: bot.BotRun, name: str, report: Report) -> list[float]:
    """Kill a pod; for each of its shards the ms until it was resumed elsewhere."""
    shards, at_s = cluster.held_by(name), cluster.discord.now_s()
    cluster.pods[name].kill()

    def back() -> dict[int, float]:
        found = {e.shard: e.at_s for e in reversed(cluster.entries(at_s)) if e.kind == "resumed" and e.shard in shards}
        return found if set(found) == shards else {}

    times = wait_until(back, 60.0, what=cluster.last_words, every_s=0.2)
    report.progress(f"{name} killed: {len(shards)} shards resumed within {max(times.values()) - at_s:.1f} s")
    return [round((time_s - at_s) * 1000, 1) for time_s in times.values()]
