"""What the benchmarks of shards share: a bot's cluster under events, and what one deed to it cost.

All times are the stand-in's own, whose clock is the machine's; the product has no part in the figures.

| figure | what it is |
|---|---|
| lost, doubled, out_of_order | of the events that Discord's stand-in told, by what consumers heard |
| identifies | sessions begun since the deed, which Discord counts; `refused`: of these, those that came too soon |
| resumed | sessions that went on elsewhere |
| gap_p50_ms, gap_p95_ms, gap_p99_ms, gap_ms | per shard: from the end of one connection to RESUMED on the next |
| unserved_ms | the longest time in which a guild had no connection of any target |
| delay_p99_ms | from an event's telling to its hearing by a consumer |
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from app.local.discord import checker
from app.local.shards.stage import BotStage
from app.local.waiting import wait_until
from benchmarks.arguments import positive, whole

if TYPE_CHECKING:
    import argparse

    from benchmarks.report import Report

FIGURES = (
    "case", "pods", "shards", "events", "lost", "doubled", "out_of_order", "identifies", "resumed",
    "gap_p50_ms", "gap_p95_ms", "gap_ms", "unserved_ms", "delay_p99_ms", "seconds",
)  # fmt: skip
GUILDS_A_SHARD = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a bot under events."""
    parser.add_argument("--pods", type=whole, default=10, help="pods that hold shards (10)")
    parser.add_argument("--shards", type=whole, default=64, help="shards at the beginning (64)")
    parser.add_argument("--rate", type=positive, default=60.0, help="events a second (60)")
    parser.add_argument("--ttl", type=positive, default=9.0, help="of a pod's shards, in seconds, at least 3 (9)")


class BotRun(BotStage):
    """A bot's cluster that is whole and under events; a context manager."""

    def __init__(self, options: argparse.Namespace, report: Report) -> None:
        """Nothing is started before `prepare`."""
        super().__init__(shards=options.shards, guilds=GUILDS_A_SHARD * options.shards, ttl_s=options.ttl)
        self.options, self.report = options, report
        self._from_s = 0.0

    def prepare(self) -> None:
        """Start everything, wait until each shard is served and the loads are level, and let events come."""
        options = self.options
        self.report.progress(f"starting {options.pods} pods")
        self.start(options.pods)
        self.wait_settled(options.shards)
        self.wait_level()
        self.discord.load(options.rate)
        time.sleep(2.0)
        self.report.progress(f"{options.shards} shards serve on {len(self.served().ready)} pods, events come")
        self.begin()

    def wait_level(self) -> None:
        """Wait until no pod has two shards more than another, or as long as the rebalance may take."""

        def level() -> bool:
            counts = [len(self.held_by(name)) for name in self.pods if self.pods[name].running]
            return max(counts) - min(counts) <= 1

        wait_until(level, 120.0, what="the loads to be level", every_s=0.5)

    def begin(self) -> None:
        """What clients do counts from here on."""
        self._from_s = self.discord.now_s()

    def row(self, case: str, *, settled_s: float = 0.0) -> dict[str, Any]:
        """End the events and weigh everything since `begin`; `settled_s`: until when gaps count, 0 for now."""
        self.report.progress("waiting until consumers have heard the rest")
        self.hush()
        now_s = settled_s or self.discord.now_s()
        entries = [entry for entry in self.discord.entries() if entry.at_s <= now_s]
        verdict = self.verdict()
        counts = checker.figures(self.entries(self._from_s), now_s)
        spells = checker.spells(entries, now_s)
        gaps = sorted(hole.length_s * 1000 for hole in checker.gaps(spells) if hole.from_s >= self._from_s)
        unserved = checker.unserved(spells, self.discord.guilds(), self._from_s, now_s)
        return {
            "case": case,
            "pods": self.options.pods,
            "shards": self.options.shards,
            "events": verdict.told,
            "lost": len(verdict.lost),
            "doubled": len(verdict.doubled),
            "out_of_order": len(verdict.disordered),
            "identifies": int(counts["identifies"]),
            "refused": int(counts["refused"]),
            "resumed": int(counts["resumed"]),
            "gaps": len(gaps),
            "gap_p50_ms": round(checker.share(gaps, 0.5), 1),
            "gap_p95_ms": round(checker.share(gaps, 0.95), 1),
            "gap_p99_ms": round(checker.share(gaps, 0.99), 1),
            "gap_ms": round(checker.share(gaps, 1.0), 1),
            "unserved_ms": round(max((hole.length_s * 1000 for hole in unserved), default=0.0), 1),
            "delay_p99_ms": round(checker.share(verdict.late_s, 0.99) * 1000, 1),
            "seconds": round(now_s - self._from_s, 1),
        }


def expect_exact(report: Report, row: dict[str, Any], identifies: int) -> None:
    """What every deed to a cluster has to keep: nothing lost, doubled or out of order, no identify but these."""
    for name in ("lost", "doubled", "out_of_order", "refused"):
        report.expect(row, name, "exactly", 0)
    report.expect(row, "identifies", "exactly", identifies)
