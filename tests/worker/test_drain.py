"""A worker drains, by command and by SIGTERM, on every pool; the other gate and signals are in `tests/life`."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

from tests.worker.conftest import KEYS, on_every_pool
from throttle.control import Control, ask

if TYPE_CHECKING:
    from app.local.guard import Process
    from tests.worker.conftest import Fleet

PREFETCHED = 2
CONFIG = {"WORKLOAD_CONFIG": json.dumps({"worker_prefetch_multiplier": 1 + PREFETCHED})}
HASTY = {"THROTTLE_DRAIN_TIMEOUT": "0.3", "THROTTLE_DRAIN_GRACE": "5"}
HASTIEST = {"THROTTLE_DRAIN_TIMEOUT": "0.3", "THROTTLE_DRAIN_GRACE": "0.3"}


def start(fleet: Fleet, pool: str, name: str = "pod", **settings: Any) -> Process:
    """A pod whose temporary folder is the fleet's."""
    (pod,) = fleet.start(name, pool=pool, TMPDIR=str(fleet.workers.folder), **settings)
    return pod


def reach(fleet: Fleet, name: str = "pod") -> Control:
    """Its control address."""
    return Control(**json.loads((fleet.workers.folder / f"headroom-default-{name}.control").read_text()))


def runs(fleet: Fleet, task: str) -> None:
    """Wait for a task to run."""
    fleet.wait(lambda: fleet.started(task), f"{task} to run")


def wait_for(fleet: Fleet, state: str) -> dict[str, Any]:
    """Wait until the drain stands so."""
    return fleet.wait(lambda: (found := ask(reach(fleet)))["state"] == state and found, state)


def queued(fleet: Fleet) -> list[str]:
    """Ids in the queue, the next one first."""
    return [json.loads(raw)["headers"]["id"] for raw in reversed(fleet.client.lrange("celery", 0, -1))]


def nothing_is_counted(fleet: Fleet) -> None:
    """No message carries a delivery that failed, and nobody is a member."""
    assert not fleet.client.keys(KEYS.namespace() + "deliveries*")
    assert fleet.dead() == []
    counts = fleet.counts()
    assert (counts.alive, counts.draining) == (0, 0)
    assert fleet.held() == 0


def mend_and_finish(fleet: Fleet, pool: str, *tasks: str) -> None:
    """Another pod does what went back."""
    fleet.client.set("mended", 1)
    start(fleet, pool, "other")
    fleet.wait_done(*tasks)


def by_command(fleet: Fleet, pool: str, **settings: str) -> None:
    """What has not begun is back at once and in order, what runs is asked to end, and the worker stays up."""
    pod = start(fleet, pool, **CONFIG, **settings)
    first = fleet.send("draining", "asks")
    runs(fleet, first)
    others = [fleet.send("work") for _ in range(PREFETCHED + 1)]
    if pool not in ("gevent", "solo"):
        fleet.wait(lambda: len(queued(fleet)) < len(others), "some to be fetched")
    ask(reach(fleet), {})
    assert wait_for(fleet, "dry")["asked_by"] == "command"
    assert queued(fleet) == others, (first, others, pod.read_log())
    assert fleet.started(first) == 1
    nothing_is_counted(fleet)
    late = fleet.send("work")
    assert ask(reach(fleet), {"timeout": 1})["state"] == "dry"
    assert pod.running
    os.kill(pod.pid, signal.SIGTERM)
    assert pod.wait(20) == 0
    assert not fleet.client.keys("unacked*")
    assert queued(fleet) == [*others, late]


def at_the_deadline(fleet: Fleet, pool: str, **settings: str) -> None:
    """A task is told once; what ends by it goes back to the head, uncounted; SIGTERM ends the worker with 0."""
    pod = start(fleet, pool, **HASTY, **settings)
    task = fleet.send("draining", "saves")
    runs(fleet, task)
    other = fleet.send("work")
    os.kill(pod.pid, signal.SIGTERM)
    assert pod.wait(20) == 0, pod.read_log()
    assert fleet.client.lrange(f"told:{task}", 0, -1) == [b"1"], pod.read_log()
    assert queued(fleet) == [task, other]
    nothing_is_counted(fleet)
    mend_and_finish(fleet, pool, task, other)


def left_over(fleet: Fleet, pool: str, **settings: str) -> None:
    """A task that goes on is cut off: its message is back at the head, uncounted, and the exit code says so."""
    pod = start(fleet, pool, **HASTIEST, **settings)
    task = fleet.send("draining", "ignores")
    runs(fleet, task)
    ask(reach(fleet), {})
    assert [each["id"] for each in wait_for(fleet, "left over")["running"]] == [task]
    assert fleet.held() == 1
    assert pod.running
    os.kill(pod.pid, signal.SIGTERM)
    assert pod.wait(20) == 3, pod.read_log()
    assert queued(fleet) == [task]
    nothing_is_counted(fleet)


test_by_command = on_every_pool(by_command)
test_at_the_deadline = on_every_pool(at_the_deadline)
test_left_over = on_every_pool(left_over)
