"""Producers that ring no bell: how long their messages wait for an idle fleet, and what hearing them costs.

A plain Celery app and a bare LPUSH, in turns, publish single messages at random instants to a fleet that has nothing
to do. Neither knows this library, so nobody is rung by them; one pod of the fleet, the doorkeeper, is told by Redis.

p50, p99, max    ms from just before the publication to the first line of the task
bells            rung for a message by anybody: the pods that were woken for it
after_*          the same once all its doorkeepers had been killed and frozen: as before, or not
killed_max       the longest wait (ms) of a message that was published, one every 50 ms, from a SIGKILL of the
                 doorkeeper's pod on; the pods that are left find it, or the next doorkeeper does
frozen_max       the same with SIGSTOP
keeper           commands a second that the doorkeeper costs the whole idle fleet on top of what it does without
keeper_flow      the same while the messages go on
fleet            commands a second of the whole idle fleet, Celery's own heartbeats included
idle_cores       processors that the whole machine uses while the fleet is idle
load             of the machine (one minute's average) as the messages begin

Threads are the default pool: twenty pods of them fit into 2 GB and are idle on a small machine.
"""

from __future__ import annotations

import base64
import json
import os
import random
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from app.local.processes import wait_ready
from app.local.waiting import wait_until
from benchmarks import workload
from benchmarks.arguments import POOLS, add_systems, gates, positive, whole
from benchmarks.fleet import KEYS, Fleet, Variant
from benchmarks.monitor import Monitor
from benchmarks.report import quantile, rounded
from benchmarks.workload import NORMAL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from benchmarks.report import Report, Row

SUMMARY = "messages of producers without the library, to an idle fleet: latency, pods woken, commands"
FIGURES = (
    "p50_ms", "p99_ms", "max_ms", "celery_p50_ms", "lpush_p50_ms", "bells", "killed_max_ms", "frozen_max_ms",
    "after_p50_ms", "after_p99_ms", "after_bells", "keeper_per_s", "keeper_flow_per_s", "fleet_per_s", "lost",
    "idle_cores", "load",
)  # fmt: skip
SIZES = (1, 5, 20)
GAP_S = (0.05, 0.5)
STREAM_S, STREAM_GAP_S = 3.0, 0.05
PATIENCE_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    add_systems(parser)
    parser.add_argument("--pods", type=whole, action="append", help="size of the fleet (1, 5 and 20); may be repeated")
    parser.add_argument("--pool", choices=POOLS, default="threads", help="of the pods (threads)")
    parser.add_argument("--messages", type=whole, default=200, help="single messages (200)")
    parser.add_argument("--rounds", type=whole, default=3, help="doorkeepers to be killed, and to be frozen (3)")
    parser.add_argument("--window", type=positive, default=8.0, help="seconds for which commands are counted (8)")


def run(options: argparse.Namespace, report: Report) -> int:
    """Measure each size with the brake at its gates, then without."""
    for pods in options.pods or SIZES:
        for gate in gates(options):
            row = measure(options, report, Variant(gate, pool=options.pool), pods)
            report.add(row)
            if gate == "take":
                expect(row, report)
    return report.finish(FIGURES, heads=("system", "pods"))


def expect(row: Row, report: Report) -> None:
    """Hold Headroom's figures against what is promised."""
    report.expect(row, "lost", "exactly", 0)
    report.expect(row, "bells", "at most", 1.02)
    report.expect(row, "keeper_per_s", "at most", 10)
    report.expect(row, "p50_ms", "at most", 15, binding=False)
    report.expect(row, "p99_ms", "at most", 100, binding=False)
    if row["killed_max_ms"] is not None:
        report.expect(row, "after_bells", "at most", 1.02)
        report.expect(row, "after_p50_ms", "at most", 15, binding=False)
        report.expect(row, "after_p99_ms", "at most", 100, binding=False)
        report.expect(row, "killed_max_ms", "at most", 1250, binding=False)
        report.expect(row, "frozen_max_ms", "at most", 1250, binding=False)


class Foreigners:
    """Producers that know the broker and the task's name, and nothing of this library."""

    def __init__(self, fleet: Fleet) -> None:
        """Stand ready; nothing is sent."""
        self.fleet = fleet
        self.sent_s: dict[str, float] = {}
        """By task, just before it was published."""
        self.by: dict[str, str] = {}
        """By task, the producer's kind."""
        self._app = workload.create(fleet.server.url, gate="")

    def close(self) -> None:
        """Close the connections."""
        self._app.close()

    def publish(self) -> str:
        """One message, by plain Celery and by LPUSH in turns; the id of its task."""
        task = str(uuid.uuid4())
        kind = ("celery", "lpush")[len(self.sent_s) % 2]
        raw = message(task)
        self.by[task], self.sent_s[task] = kind, time.time()
        if kind == "celery":
            self._app.send_task("rest", (0.0,), task_id=task, queue=NORMAL)
        else:
            self.fleet.broker.lpush(NORMAL, raw)
        return task

    def waited_ms(self, start: int) -> dict[str, float]:
        """By task, from its publication to its start, of those that ended from a place in that order on."""
        return {run.task: (run.began_s - self.sent_s[run.task]) * 1000 for run in self.fleet.runs(start)}


def message(task: str) -> str:
    """A task as kombu's Redis transport would write it."""
    body = json.dumps([[0.0], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
    delivery = {"exchange": "", "routing_key": NORMAL}
    return json.dumps(
        {
            "body": base64.b64encode(body.encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"lang": "any", "task": "rest", "id": task, "root_id": task, "parent_id": None, "retries": 0},
            "properties": {
                "correlation_id": task,
                "delivery_mode": 2,
                "delivery_info": delivery,
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid.uuid4()),
            },
        }
    )


def measure(options: argparse.Namespace, report: Report, variant: Variant, pods: int) -> Row:
    """One fleet."""
    label = f"{variant.system}, {pods} pods"
    report.progress(f"{label}: starting")
    with Fleet(variant, pods) as fleet:
        producers = Foreigners(fleet)
        _warm_up(fleet)
        report.progress(f"{label}: counting the commands of an idle fleet")
        idle = _idle(fleet, options.window)
        report.progress(f"{label}: {options.messages} messages, one at a time")
        before, load = fleet.done(), os.getloadavg()[0]
        figures = _one_by_one(producers, options.messages)
        waited = producers.waited_ms(before)
        disturbed: Row = dict.fromkeys(
            ("killed_max_ms", "frozen_max_ms", "after_p50_ms", "after_p99_ms", "after_bells")
        )
        if variant.gate == "take" and pods > 1:
            report.progress(f"{label}: killing and freezing doorkeepers")
            disturbed = _disturbed(options, producers)
        lost = len(producers.sent_s.keys() - {run.task for run in fleet.runs()} - fleet.remaining())
        producers.close()
    kinds = {
        f"{kind}_p50_ms": rounded(quantile([ms for task, ms in waited.items() if producers.by[task] == kind], 0.5))
        for kind in ("celery", "lpush")
    }
    return {
        "system": variant.system,
        "pods": pods,
        "pool": variant.pool,
        "messages": options.messages,
        **figures,
        **kinds,
        **disturbed,
        **idle,
        "lost": lost,
        "load": rounded(load),
    }


def _warm_up(fleet: Fleet) -> None:
    """Have every pod run a task, or at least try: connections are open and scripts loaded then."""
    sent = 4 * len(fleet.pods)
    for _ in range(sent):
        fleet.send("rest", 0.02)
    _wait_done(fleet, sent)


def _wait_done(fleet: Fleet, count: int) -> None:
    """Wait until so many tasks are done since the start, and everything is acknowledged."""
    wait_until(lambda: fleet.done() >= count, PATIENCE_S, what=lambda: f"{count} tasks done, {fleet.done()} are")
    wait_until(lambda: fleet.held() == 0, PATIENCE_S, what="the last acknowledgement")


def _idle(fleet: Fleet, window_s: float) -> Row:
    """What the fleet sends, and what the machine does, while nothing is published."""
    busy_s = _machine_busy_s()
    with Monitor(fleet.broker) as monitor:
        began_s = time.monotonic()
        time.sleep(window_s)
        took_s = time.monotonic() - began_s
    busy_s = _machine_busy_s() - busy_s
    return {
        "keeper_per_s": _keeper_per_s(fleet, monitor, took_s),
        "fleet_per_s": rounded(len(monitor.calls) / took_s),
        "idle_cores": rounded(busy_s / took_s),
    }


def _keeper_per_s(fleet: Fleet, monitor: Monitor, took_s: float) -> float | None:
    """Commands a second on the connections of doorkeepers; None for a system that has none."""
    if fleet.variant.gate != "take":
        return None
    keepers = monitor.ports_of("watch")
    return rounded(sum(call.port in keepers for call in monitor.calls) / took_s)


def _machine_busy_s() -> float:
    """Seconds of processor time that were not idle, of all processors, since the machine started."""
    user, nice, system, _, _, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def _one_by_one(producers: Foreigners, count: int) -> Row:
    """Publish at random instants, each when the one before is done."""
    fleet = producers.fleet
    before = fleet.done()
    with Monitor(fleet.broker) as monitor:
        began_s = time.monotonic()
        for number in range(1, count + 1):
            time.sleep(random.uniform(*GAP_S))
            producers.publish()
            _wait_done(fleet, before + number)
        took_s = time.monotonic() - began_s
    waits = list(producers.waited_ms(before).values())
    return {
        "p50_ms": rounded(quantile(waits, 0.5)),
        "p99_ms": rounded(quantile(waits, 0.99)),
        "max_ms": rounded(max(waits)),
        "bells": rounded(monitor.bells / count, 3) if fleet.variant.gate == "take" else None,
        "keeper_flow_per_s": _keeper_per_s(fleet, monitor, took_s),
    }


def _disturbed(options: argparse.Namespace, producers: Foreigners) -> Row:
    """Kill doorkeepers, freeze doorkeepers, then look whether all is as before."""
    fleet = producers.fleet
    killed: list[float] = []
    frozen: list[float] = []
    for _ in range(options.rounds):
        name = _keeper(fleet)
        killed.append(_worst_ms(producers, fleet.pods[name].kill))
        wait_ready([fleet.start_pod(name)])
    for _ in range(options.rounds):
        name = _keeper(fleet)
        frozen.append(_worst_ms(producers, fleet.pods[name].pause))
        fleet.pods[name].resume()
    _keeper(fleet)
    after = _one_by_one(producers, options.messages)
    return {
        "killed_ms": [rounded(ms) for ms in killed],
        "killed_max_ms": rounded(max(killed)),
        "frozen_ms": [rounded(ms) for ms in frozen],
        "frozen_max_ms": rounded(max(frozen)),
        "after_p50_ms": after["p50_ms"],
        "after_p99_ms": after["p99_ms"],
        "after_bells": after["bells"],
    }


def _keeper(fleet: Fleet) -> str:
    """The pod that keeps the door, once there is one and every pod is counted."""

    def found() -> str:
        member = cast("bytes | None", fleet.broker.get(KEYS.namespace() + "doorkeeper")) or b""
        return member.decode().rpartition("#")[0]

    wait_until(lambda: fleet.broker.zcard(KEYS.alive()) >= len(fleet.pods), what="all pods")
    return wait_until(found, what="a doorkeeper")


def _worst_ms(producers: Foreigners, strike: Callable[[], Any]) -> float:
    """The longest wait of messages that are published one after the other from a blow on."""
    fleet = producers.fleet
    before, count = fleet.done(), 0
    time.sleep(random.uniform(*GAP_S))
    strike()
    began_s = time.monotonic()
    while (left_s := began_s + STREAM_S - time.monotonic()) > 0:
        producers.publish()
        count += 1
        time.sleep(min(left_s, STREAM_GAP_S))
    _wait_done(fleet, before + count)
    return max(producers.waited_ms(before).values())
