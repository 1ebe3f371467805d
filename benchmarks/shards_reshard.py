"""The number of shards changes under events: up by half, and down again.

The new total connects beside the old one and takes over in one step; then the old one closes. No guild may be without
a serving connection at any instant (`unserved_ms`), nothing may be lost or doubled, and Discord counts one identify for
each shard of the new total.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import bot
from benchmarks.arguments import whole

if TYPE_CHECKING:
    import argparse

    from benchmarks.report import Report

SUMMARY = "the number of shards changes under events, up and down: gaps of guilds, lost events, identifies"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    bot.add_arguments(parser)
    parser.add_argument("--to", type=whole, default=96, help="shards in between (96)")


def run(options: argparse.Namespace, report: Report) -> int:
    """Up, then down; each on the same cluster."""
    with bot.BotRun(options, report) as cluster:
        cluster.prepare()
        for case, old, total in (("up", options.shards, options.to), ("down", options.to, options.shards)):
            cluster.discord.load(options.rate)
            cluster.begin()
            outcome = cluster.wants(total)
            report.progress(f"{case} to {total}: {outcome}")
            cluster.wait_settled(total, 300.0)
            row = cluster.row(case, settled_s=cluster.closed_s(old))
            row["shards"] = total
            report.add(row)
            bot.expect_exact(report, row, identifies=total)
            report.expect(row, "unserved_ms", "exactly", 0)
    return report.finish(bot.FIGURES, heads=("case",))
