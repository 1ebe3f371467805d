"""What the operations cost inside Redis when many pods wait: PUT and TAKE with 0, 50 and 500 waiters.

No workers here: members of a fleet join and wait by the operations themselves, so that one process can stand for five
hundred pods. Each operation is measured by itself, by what the server counts (INFO commandstats) before and after it:

*_us      median time of the script in the server, in microseconds
*_calls   median number of commands that the script calls

put         to a queue that all wait for: one is rung
put_full    the same while no more work is admitted: nobody is rung
take        of the one that was rung: it gets the message
look        of one that finds nothing and registers as waiting

The calls say the same on every machine. They must not grow with the number of waiters: that is what the index of
waiters by queue is for.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from app.local.guard import Guard
from app.local.servers import Server
from benchmarks.arguments import whole
from benchmarks.report import median
from throttle.keys import Keys
from throttle.scripts import Operations, Rule, Take

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    import redis

    from benchmarks.report import Report, Row

Answer = TypeVar("Answer")

SUMMARY = "PUT and TAKE inside Redis, by the number of pods that wait"
WAITERS = (0, 50, 500)
MEASURED = ("put", "put_full", "take", "look")
COLUMNS = ("waiters", *(f"{name}_{unit}" for name in MEASURED for unit in ("us", "calls")))
ROOMY, NARROW = 1.0, 1e-6
"""Ratios: everybody may work; one alone may."""
SPREAD = 2
"""By how many calls two rows may differ: an expiry that is set once, a list that is empty at times."""
REFRESH_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    parser.add_argument("--waiters", type=whole, action="append", help="how many wait (0, 50, 500); may be repeated")
    parser.add_argument("--repeat", type=whole, default=200, help="how often each operation is measured (200)")


def run(options: argparse.Namespace, report: Report) -> int:
    """Measure each number of waiters."""
    first: Row | None = None
    with Guard() as guard:
        server = Server(guard).start()
        for waiters in options.waiters or WAITERS:
            report.progress(f"{waiters} waiters")
            with server.client() as client:
                row = measure(client, waiters, options.repeat)
            report.add(row)
            first = first or (row if waiters else None)
            for name in MEASURED:
                if first is not None:
                    report.expect(row, f"{name}_calls", "at most", first[f"{name}_calls"] + SPREAD)
    return report.finish(COLUMNS)


class Cost(NamedTuple):
    """Of one operation inside the server."""

    us: float
    calls: int


class Scene:
    """So many members that wait for one queue, and one more that works."""

    def __init__(self, client: redis.Redis, waiters: int, ratio: float) -> None:
        """Begin on an empty server."""
        client.flushall()
        self.client = client
        self.keys = Keys("waiters")
        self.operations = Operations(client, self.keys, Rule(ratio, 3600_000, 5))
        self.worker = "worker#1"
        self.waiters = [f"pod-{number}#1" for number in range(waiters)]
        self._ids: dict[str, int] = {}
        self._fresh_s = 0.0
        for member in (self.worker, *self.waiters):
            self.operations.join(member)

    def take(self, member: str) -> Take | None:
        """TAKE with the member's next number."""
        number = self._ids.setdefault(member, 1)
        answer = self.operations.take(member, number, ["critical"], ["work"])
        if isinstance(answer, Take):
            self._ids[member] += 1
            return answer
        return None

    def wait_anew(self) -> None:
        """Have all waiters look, as they do every second; an older note of a waiter counts for nothing."""
        if time.monotonic() - self._fresh_s > REFRESH_S:
            for member in self.waiters:
                self.take(member)
            self._fresh_s = time.monotonic()

    def rung(self) -> str:
        """The member whose bell was rung; the worker when it was nobody's."""
        found = cast("dict[bytes, bytes]", self.client.hgetall(self.keys.namespace() + "rung"))
        return next((member.decode() for member in found), self.worker)

    def forget_worker(self) -> None:
        """Make as if the worker had not looked."""
        if not self.waiters:
            written = cast("list[bytes]", self.client.keys(self.keys.namespace() + "wa[in]t*"))
            self.client.delete(*written)

    def cost(self, operation: Callable[..., Answer], *arguments: str) -> tuple[Cost, Answer]:
        """What one operation costs the server, and its answer."""
        before = self._counted()
        answer = operation(*arguments)
        after = self._counted()
        return Cost(after.us - before.us, after.calls - before.calls), answer

    def _counted(self) -> Cost:
        stats = cast("dict[str, dict[str, int]]", self.client.info("commandstats"))
        inside = [entry["calls"] for name, entry in stats.items() if name not in ("cmdstat_info", "cmdstat_evalsha")]
        return Cost(stats.get("cmdstat_evalsha", {}).get("usec", 0), sum(inside))


def measure(client: redis.Redis, waiters: int, repeat: int) -> Row:
    """One number of waiters."""
    costs: dict[str, list[Cost]] = {name: [] for name in MEASURED}
    scene = Scene(client, waiters, ROOMY)
    for _ in range(repeat):
        scene.wait_anew()
        costs["put"].append(scene.cost(scene.operations.put, "work", "message")[0])
        member = scene.rung()
        cost, take = scene.cost(scene.take, member)
        assert take is not None  # noqa: S101 - nobody else takes
        costs["take"].append(cost)
        scene.operations.ack(member, take.id)
        costs["look"].append(scene.cost(scene.take, member)[0])
        scene.forget_worker()
    full = Scene(client, waiters, NARROW)
    full.operations.put("work", "message")
    full.take(full.worker)
    for _ in range(repeat):
        full.wait_anew()
        costs["put_full"].append(full.cost(full.operations.put, "work", "message")[0])
    figures = {
        f"{name}_{unit}": median([cost[part] for cost in costs[name]])
        for name in MEASURED
        for part, unit in enumerate(("us", "calls"))
    }
    return {"waiters": waiters, **{name: round(value or 0) for name, value in figures.items()}}
