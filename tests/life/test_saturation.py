"""A fleet with more work than it may do: its order, its critical work, and how quiet it is.

One pool after the other. Counts, orders and one ratio decide; the times are the benchmark's, on a quiet machine.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from app.local.recorder import RUNS_KEY
from tests.worker.conftest import POOLS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.worker.conftest import Fleet

PODS, CAPACITY = ("one", "two", "three", "four", "five"), 4
TASKS, SECONDS = 60, 0.3
CRITICAL, APART_S = 3, 0.7
IDEAL_S = TASKS * SECONDS / CAPACITY
SLACK = 2.0


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of them lies."""
    return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]


@pytest.mark.parametrize("pool", POOLS)
def test_a_saturated_fleet(fleet: Fleet, pool: str) -> None:
    fleet.start(*PODS, pool=pool)
    fleet.wait(lambda: fleet.counts().waiters == len(PODS), "all pods waiting")
    began = time.time()
    normal = [fleet.send("work", SECONDS) for _ in range(TASKS)]
    critical: dict[str, float] = {}
    ready = threading.Event()
    for _ in range(CRITICAL):
        ready.wait(APART_S)
        sent = time.time()
        critical[fleet.send("work", 0.0, queue="critical")] = sent
    fleet.wait_done(*normal, *critical, timeout_s=40.0)
    records = fleet.workers.records()
    starts = {r["task"]: r["at"] for r in records if r["what"] == "start"}
    ends = {r["task"]: r["at"] for r in records if r["what"] == "end"}
    makespan_s = max(ends[task] for task in normal) - began
    critical_ms = [(starts[task] - sent) * 1000 for task, sent in critical.items()]
    wake_ms = wake_ups_ms([starts[task] for task in normal], [ends[task] for task in normal])
    print(  # noqa: T201 - the figures, for who asks by -s
        f"\n{pool}: makespan {makespan_s / IDEAL_S:.3f} of ideal, wake-up p50 {percentile(wake_ms, 0.5):.1f} ms, "
        f"p99 {percentile(wake_ms, 0.99):.1f} ms, critical {max(critical_ms):.1f} ms"
    )
    takes = [entry for entry in fleet.journal("take") if entry["lane"] == "normal"]
    assert all(int(entry["busy"]) < int(entry["capacity"]) for entry in takes)
    by_take = {(r["pod"], r["take"]): r["task"] for r in records if r["what"] == "start"}
    assert [by_take[entry["member"].partition("#")[0], entry["id"]] for entry in takes] == normal
    assert fleet.journal("back", "return") == []
    assert fleet.violations() == 0
    assert makespan_s <= IDEAL_S * 1.08 * SLACK
    for task, sent in critical.items():
        overtaken_by = sum(sent < starts[other] < starts[task] for other in normal)
        assert overtaken_by <= CAPACITY, "critical work does not stand in the queue of the others"


def wake_ups_ms(starts: list[float], ends: list[float]) -> list[float]:
    """From each end of a task to the next start of one, while tasks wait: the n-th end frees the place of a start."""
    starts, ends = sorted(starts), sorted(ends)
    return [(start - end) * 1000 for start, end in zip(starts[CAPACITY:], ends, strict=False)]


def test_commands_of_idle_and_of_denied_pods(fleet: Fleet) -> None:
    """At most 3.5 a second and pod, Celery's heartbeat event and the fleet's doorkeeper included."""
    fleet.start(*PODS, pool="threads", THROTTLE_TTL="30")
    fleet.wait(lambda: fleet.counts().waiters == len(PODS), "all pods waiting")
    idle = commands_per_s(fleet, 4.0) / len(PODS)
    blocking = [fleet.send("work", 8.0) for _ in range(CAPACITY)]
    fleet.wait(lambda: all(fleet.started(task) for task in blocking), "a fleet at capacity")
    waiting = [fleet.send("work") for _ in range(20)]
    denied = commands_per_s(fleet, 4.0) / len(PODS)
    fleet.wait_done(*blocking, *waiting, timeout_s=30.0)
    print(f"\ncommands a second and pod: idle {idle:.2f}, saturated {denied:.2f}")  # noqa: T201
    assert idle <= 3.5
    assert denied <= 3.5


def commands(fleet: Fleet, until: Callable[[], bool]) -> Counter[str]:
    """What clients send until a condition holds, by name, without what scripts call."""
    kinds: Counter[str] = Counter()
    with fleet.client.monitor() as monitor:
        fleet.wait(until, "the end of the count", timeout_s=30.0)
        fleet.client.echo("the end of the count")
        while "ECHO" not in kinds:
            said: Any = monitor.next_command()
            if said["client_type"] != "lua" and RUNS_KEY not in said["command"]:
                kinds[said["command"].split()[0]] += 1
    del kinds["ECHO"]
    return kinds


def commands_per_s(fleet: Fleet, seconds: float) -> float:
    """Commands that clients sent."""
    end = time.monotonic() + seconds
    return commands(fleet, lambda: time.monotonic() > end).total() / seconds


def test_commands_of_a_task(fleet: Fleet) -> None:
    """At most 5: publish, take, acknowledge, and what is left for bells. Celery's events are its own."""
    fleet.start("one", pool="threads")
    fleet.wait(lambda: fleet.counts().waiters == 1, "the pod waiting")
    fleet.wait_done(fleet.send("work"))
    before = fleet.client.llen(RUNS_KEY)
    sent = [fleet.send("work", 0.02) for _ in range(50)]
    kinds = commands(fleet, lambda: fleet.client.llen(RUNS_KEY) == before + 100)
    fleet.wait_done(*sent)
    print(f"\ncommands a task: {dict(kinds)}")  # noqa: T201
    counted = 50 + kinds.total() - kinds["PUBLISH"]  # 50 were published before; PUBLISH: Celery's own events
    assert counted / 50 <= 5
