"""Every pod that holds shards is replaced, one after the other, as a rolling deploy does it.

A new pod starts; when it has joined, an old one gets SIGTERM: it hands its shards over and ends. Sessions are resumed,
so that Discord counts no identify; the gap of a shard is the time from the old connection's end to RESUMED on the new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.local.processes import wait_ready
from app.local.waiting import wait_until
from benchmarks import bot

if TYPE_CHECKING:
    import argparse

    from benchmarks.report import Report

SUMMARY = "a rolling deploy of all pods that hold shards: gaps, lost events, identifies"
GAP_MS = 1000.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    bot.add_arguments(parser)


def run(options: argparse.Namespace, report: Report) -> int:
    """Replace each pod, then weigh."""
    with bot.BotRun(options, report) as cluster:
        cluster.prepare()
        exits: list[int | None] = []
        for number, name in enumerate(list(cluster.pods), start=1):
            wait_ready([cluster.add_pod(f"new-{number}")])
            cluster.pods[name].terminate()
            wait_until(lambda name=name: not cluster.pods[name].running, 60.0, what=cluster.last_words)
            exits.append(cluster.pods[name].exit_code)
            cluster.wait_settled(options.shards)
            report.progress(f"{name} is replaced")
        row = cluster.row("deploy")
    row["bad_exits"] = sum(code != 0 for code in exits)
    report.add(row)
    bot.expect_exact(report, row, identifies=0)
    report.expect(row, "bad_exits", "exactly", 0)
    report.expect(row, "gap_p99_ms", "at most", GAP_MS, binding=False)
    return report.finish((*bot.FIGURES, "gap_p99_ms", "bad_exits"), heads=("case",))
