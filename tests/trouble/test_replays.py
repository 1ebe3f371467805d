"""Public fault reports, replayed on plain Celery and on Headroom side by side.

A replay ends in words that say what became of the work. Plain Celery, in the pinned version, must end in the fault, or
docs/fault-reports.md tells of something that is mended; Headroom must not.
"""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.side import MAX_DELIVERIES, Side, System

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from app.local.guard import Guard

LATE = {"task_acks_late": True, "task_reject_on_worker_lost": True}
"""What people set who must not lose a task. Headroom sets it by itself."""

ONE_SECOND = {"visibility_timeout": 1, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


@dataclass(frozen=True)
class Replay:
    """A report: how it is played, and how it ends on each system."""

    play: Callable[[Side], str]
    celery: str
    headroom: str
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])


def killed_as_a_message_arrives(side: Side) -> str:
    """A worker is frozen while it waits for work, a message comes, the worker is killed, and another one begins."""
    (victim,) = side.start("victim")
    while True:
        side.wait(lambda: side.client.info("clients")["blocked_clients"], "a worker that waits")
        victim.pause()
        task = side.send("work")
        if side.system == "headroom" or side.waiting() == 0:
            break
        victim.resume()  # it was between two waits: the message stayed in the queue
        side.wait(lambda task=task: side.ends(task), "its end")
    victim.kill()
    side.start("heir")
    after = side.send("work")
    side.wait(lambda: side.ends(after), "the work after it")
    if side.ends(task):
        return "was done by the next one"
    return "is gone" if side.waiting() + side.unacknowledged(task) == 0 else "is somewhere"


def longer_than_the_visibility_timeout(side: Side) -> str:
    """A task takes longer than the visibility timeout, in a worker with room for another."""
    side.start("one", pool="threads", concurrency=2)
    task = side.send("work", 4.0)
    side.wait(lambda: side.ends(task), "its end")
    return "was started once" if side.starts(task) == 1 else "was started again while it ran"


def later_than_the_visibility_timeout(side: Side) -> str:
    """A task is due later than the visibility timeout."""
    side.start("one", pool="threads", concurrency=1)
    task, last = side.send("work", countdown=4.0), side.send("work", countdown=5.0)
    side.wait(lambda: side.ends(task) and side.ends(last), "both ends")
    return "was done once" if side.ends(task) == 1 else "was done several times"


def killed_over_its_task(*, early: bool) -> Callable[[Side], str]:
    """A worker is killed over a task and started anew, as Kubernetes does."""

    def play(side: Side) -> str:
        (first,) = side.start("pod", pool="threads")
        task = side.send("work", 0.7)
        side.wait(lambda: side.starts(task) and not (early and side.unacknowledged(task)), "its start")
        first.kill()
        side.start("pod")
        after = side.send("work")
        side.wait(lambda: side.ends(after) and (side.system == "celery" or side.ends(task)), "the work after it")
        if side.ends(task):
            return "was done by the next one"
        return "lies unacknowledged for an hour" if side.unacknowledged(task) else "is gone"

    return play


def full(task: str) -> Callable[[Side], str]:
    """Two workers of which one may be busy, a task that makes it so, and three more of this kind."""

    def play(side: Side) -> str:
        side.start("one", "two")
        first = side.send("occupy", 2.0)
        side.wait(lambda: side.starts(first), "the first start")
        others = [side.send(task) for _ in range(3)]
        side.wait(lambda: side.ends(first) and side.ends(*others) >= 3, "all ends")
        (end,) = side.records("end", first)
        if any(record["at"] < end["at"] for record in side.records("end", *others)):
            return "ran all the same"
        starts = side.starts(*others)
        return "waited" if starts == 3 else f"were started {'again and again' if starts > 12 else 'again'}"

    return play


def held_for_later(side: Side) -> str:
    """A worker with one place meets 30 tasks that are due in a minute, and is killed."""
    (hoarder,) = side.start("hoarder")
    for _ in range(30):
        side.send("work", countdown=60.0)
    side.wait(lambda: side.waiting() == 0 and side.unacknowledged() + side.parked() == 30, "an empty queue")
    hoarder.kill()
    return "died with their worker" if side.unacknowledged() == 30 else "wait in Redis"


def deadly_to_its_process(side: Side) -> str:
    """A task's process is killed each time."""
    side.start("one", pool="prefork")
    task = side.send("deadly")
    side.wait(lambda: side.dead() or side.starts(task) > MAX_DELIVERIES, "more deliveries than are allowed")
    return "is a dead letter" if side.dead() else "goes round"


def out_of_memory(side: Side) -> str:
    """A task ends in MemoryError."""
    (worker,) = side.start("one", pool="prefork")
    task, after = side.send("hungry"), side.send("work")
    side.wait(lambda: not worker.running or (side.dead() and side.ends(after)), "what becomes of both")
    assert side.starts(task)
    return "is a dead letter" if worker.running else "ended its worker"


def stopped_as_a_group(side: Side) -> str:
    """SIGTERM goes to the worker and to the processes of its pool."""
    (worker,) = side.start("one", pool="prefork")
    task = side.send("work", 1.0)
    side.wait(lambda: side.starts(task), "its start")
    worker.send(signal.SIGTERM)
    worker.wait(15.0)
    side.start("two")
    after = side.send("work")
    side.wait(lambda: side.ends(after), "the work after it")
    return "was done" if side.ends(task) else "is gone"


REPLAYS: dict[str, Replay] = {
    "killed-as-a-message-arrives": Replay(killed_as_a_message_arrives, "is gone", "was done by the next one", LATE),
    "longer-than-the-visibility-timeout": Replay(
        longer_than_the_visibility_timeout,
        "was started again while it ran",
        "was started once",
        {**LATE, "broker_transport_options": ONE_SECOND},
    ),
    "later-than-the-visibility-timeout": Replay(
        later_than_the_visibility_timeout,
        "was done several times",
        "was done once",
        {"broker_transport_options": ONE_SECOND},
    ),
    "killed-over-its-task": Replay(killed_over_its_task(early=True), "is gone", "was done by the next one"),
    "killed-over-its-task-acknowledged-late": Replay(
        killed_over_its_task(early=False), "lies unacknowledged for an hour", "was done by the next one", LATE
    ),
    "refused-by-task_prerun": Replay(full("refused_by_signal"), "ran all the same", "waited", LATE),
    "refused-by-reject": Replay(full("refused_by_itself"), "were started again and again", "waited", LATE),
    "held-for-later": Replay(held_for_later, "died with their worker", "wait in Redis", LATE),
    "deadly-to-its-process": Replay(deadly_to_its_process, "goes round", "is a dead letter", LATE),
    "out-of-memory": Replay(out_of_memory, "ended its worker", "is a dead letter", LATE),
    "stopped-as-a-group": Replay(stopped_as_a_group, "is gone", "was done", {"task_acks_late": True}),
}


@pytest.mark.parametrize("name", REPLAYS)
def test_celery_has_it_and_headroom_has_not(guard: Guard, tmp_path: Path, name: str) -> None:
    replay = REPLAYS[name]

    def play(system: System) -> str:
        side = Side(guard, tmp_path / system, system, replay.config)
        try:
            return replay.play(side)
        finally:
            side.end()

    with ThreadPoolExecutor(2) as threads:
        celery, headroom = threads.map(play, ("celery", "headroom"))
    assert (celery, headroom) == (replay.celery, replay.headroom)
