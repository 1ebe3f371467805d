"""How long a probe takes to answer, while the pod is idle and while its tasks burn.

One pod on each pool. Its places are filled with tasks that keep a processor busy in Python code, and
`/ready` is asked again and again by one client, as a kubelet would: each time on a new connection.
On prefork the tasks are in processes of their own; on the others they share Python's lock with the
thread that answers, so those are shown and not judged.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from app.local.guard import Guard
from app.local.processes import Placement, start_pod, wait_ready
from app.local.servers import Server, free_port
from app.local.waiting import wait_until
from benchmarks.arguments import whole
from benchmarks.report import quantile, rounded

if TYPE_CHECKING:
    import argparse

    from benchmarks.report import Report

SUMMARY = "milliseconds to an answer of /ready, idle and while tasks burn"
POOLS = ("prefork", "threads", "gevent", "solo")
COLUMNS = ("pool", "tasks", "answers", "p50_ms", "p99_ms", "max_ms")
TARGET_MS = 50.0
LONG_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    parser.add_argument("--pool", choices=POOLS, action="append", help="measure this pool (all); may be repeated")
    parser.add_argument("--burning", type=whole, default=2, help="tasks that burn, but one on solo (2)")
    parser.add_argument("--answers", type=whole, default=1000, help="answers of each measurement (1000)")


def run(options: argparse.Namespace, report: Report) -> int:
    """Measure each pool, idle and burning."""
    with Guard() as guard:
        for pool in options.pool or POOLS:
            burning = 1 if pool == "solo" else options.burning
            server, port, folder = Server(guard).start(), free_port(), guard.folder(f"probes-{pool}")
            placement = Placement(server.url, folder, {"PROBE_PORT": str(port), "PULSE_EVERY": "0"})
            pod = start_pod(guard, placement, pool, pool=pool, concurrency=burning)
            wait_ready([pod])
            report.progress(f"{pool}: idle")
            ask(port, 20)
            for tasks in (0, burning):
                if tasks:
                    burn(server, tasks)
                    wait_until(lambda port=port, tasks=tasks: busy(port) == tasks, 20, what="the tasks to burn")
                    report.progress(f"{pool}: {tasks} burning")
                took = ask(port, options.answers)
                row = {
                    "pool": pool, "tasks": tasks, "answers": len(took), "p50_ms": rounded(quantile(took, 0.5)),
                    "p99_ms": rounded(quantile(took, 0.99)), "max_ms": rounded(max(took)),
                }  # fmt: skip
                report.add(row)
                if pool == "prefork":
                    report.expect(row, "p99_ms", "at most", TARGET_MS, binding=False)
            guard.end(pod, patience_s=0)
            server.kill()
    return report.finish(COLUMNS)


def ask(port: int, times: int) -> list[float]:
    """Milliseconds that each of so many answers took."""
    took: list[float] = []
    for _ in range(times):
        began_s = time.perf_counter()
        get(port, "/ready")
        took.append((time.perf_counter() - began_s) * 1000)
    return took


def get(port: int, path: str) -> bytes:
    """The body of an answer, whatever its status."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.read()


def busy(port: int) -> float:
    """Places of the pod that are taken."""
    found = [line for line in get(port, "/metrics").splitlines() if line.startswith(b"headroom_places_busy ")]
    return float(found[0].split()[1]) if found else 0.0


def burn(server: Server, tasks: int) -> None:
    """Send tasks that burn until they are killed."""
    from celery import Celery  # noqa: PLC0415 - the rest of this benchmark needs none

    with Celery("sender", broker=server.url, set_as_current=False) as app:
        for _ in range(tasks):
            app.send_task("tasks.jobs.loads.burn", (LONG_S,), queue="task_queue")
