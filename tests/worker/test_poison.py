"""Messages that nobody can handle, and tasks that end what runs them: each becomes a dead letter after its deliveries.

The work beside it is done, once, and the fleet goes on. Mended and requeued, it is done as well.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, cast

from tests.worker.conftest import on_every_pool
from throttle.dead import DeadLetters, Letter

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.local.guard import Process
    from tests.worker.conftest import EveryPool, Fleet


def body(value: Any) -> str:
    """A body as kombu packs it."""
    return base64.b64encode(json.dumps(value).encode()).decode()


def header(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Set a header of a good message."""
    return lambda message: message["headers"].__setitem__(name, value)


def without(*path: str) -> Callable[[dict[str, Any]], None]:
    """Take a part of a good message away."""

    def change(message: dict[str, Any]) -> None:
        for name in path[:-1]:
            message = message[name]
        del message[path[-1]]

    return change


def part(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Set a part of a good message."""
    return lambda message: message.__setitem__(name, value)


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "body is null": part("body", body(None)),
    "body is no triple": part("body", body([1])),
    "body cannot be decoded": part("body", "%%%"),
    "no body": without("body"),
    "no content type": without("content-type"),
    "no headers": without("headers"),
    "no properties": without("properties"),
    "no id": without("headers", "id"),
    "id is a list": header("id", ["a"]),
    "task is a list": header("task", ["a"]),
    "unknown task": header("task", "nobody.knows"),
    "time limit is no number": header("timelimit", ["a", "b"]),
    "time limit is no pair": header("timelimit", 5),
    "eta is no time": header("eta", "tomorrow"),
    "stamped headers are no list": header("stamped_headers", 5),
}


def poisons(fleet: Fleet, pool: str) -> None:
    """One pod and every poison, then good work: the same process does it."""
    (pod,) = fleet.start("pod", pool=pool)
    joins = len(fleet.journal("join"))
    fleet.send("work", queue="elsewhere")
    good = json.loads(cast("bytes", fleet.client.rpop("elsewhere")))
    for change in CHANGES.values():
        message = json.loads(json.dumps(good))
        change(message)
        fleet.client.lpush("celery", json.dumps(message))
    for raw in (b"not json", b"null", b"[]", b"\xff\x00"):
        fleet.client.lpush("celery", raw)
    tasks = [fleet.send("work") for _ in range(5)]
    fleet.wait_done(*tasks, timeout_s=30.0)
    fleet.wait(lambda: fleet.waiting() == 0 and fleet.held() == 0, "nothing left")
    assert pod.running
    assert len(fleet.dead()) >= len(CHANGES) + 4 - TOLERATED
    fleet.wait(lambda: fleet.counts().busy == 0, "the slot is free")
    assert len(fleet.journal("join")) == joins, "the pod did not even lose its connection over them"


TOLERATED = 3
"""What Celery runs or refuses by itself on some pool: a time limit where there are none, stamps that are no list."""


def test_no_message_brings_a_pod_down(every_pool: EveryPool) -> None:
    every_pool(poisons, {})


# ---------------------------------------------------------------- tasks that end what runs them

LIMIT = 3
SETTINGS = {"THROTTLE_MAX_DELIVERIES": str(LIMIT)}


def letters(fleet: Fleet) -> dict[str, Letter]:
    """The dead letters, by the ids of their tasks."""
    return {letter.task_id: letter for letter in DeadLetters(fleet.operations)}


def mend_and_requeue(fleet: Fleet, *tasks: str) -> None:
    """Somebody mends the code and sends its dead letters on their way again."""
    fleet.client.set("mended", 1)
    ids = [letter.id for letter in letters(fleet).values()]
    assert [outcome.error for outcome in DeadLetters(fleet.operations).requeue(ids)] == [""] * len(ids)
    fleet.wait_done(*tasks, timeout_s=30.0)
    assert letters(fleet) == {}
    assert fleet.client.keys("*deliveries:*") == [], "what is done is forgotten"


def test_a_task_that_ends_its_child_is_a_dead_letter_after_its_deliveries(fleet: Fleet) -> None:
    """By its own hand, and killed for the lack of memory; the pod lives on all the while."""
    (pod,) = fleet.start("pod", concurrency=3, **SETTINGS)
    before = [fleet.send("work", 0.05) for _ in range(5)]
    hungry, ending = fleet.send("poison", "out of memory, killed"), fleet.send("poison", "its process ends")
    after = [fleet.send("work", 0.05) for _ in range(10)]
    fleet.wait(lambda: set(letters(fleet)) == {hungry, ending}, "two dead letters", timeout_s=60.0)
    fleet.wait_done(*before, *after)
    for task, text in ((hungry, "signal 9 (SIGKILL)"), (ending, "exitcode 3")):
        letter = letters(fleet)[task]
        assert (fleet.started(task), letter.deliveries, letter.reason) == (LIMIT, LIMIT, "crashed")
        assert [failure.why for failure in letter.history] == ["crashed"] * LIMIT
        assert all("WorkerLostError" in failure.text and text in failure.text for failure in letter.history)
        assert len({failure.member for failure in letter.history}) == 1
    assert sorted(fleet.workers.done()) == sorted([*before, *after]), "the others are done, and once"
    assert pod.running
    mend_and_requeue(fleet, hungry, ending)


@on_every_pool
def test_a_task_that_kills_its_pod_is_a_dead_letter_and_its_neighbours_are_not(fleet: Fleet, pool: str) -> None:
    """Four at a time in one pod, which dies with all it holds: what is condemned is the one that kills."""
    many: dict[str, Any] = {"pool": pool, "concurrency": 1 if pool == "solo" else 4, **SETTINGS}
    before = [fleet.send("work", 0.6) for _ in range(3)]
    task = fleet.send("poison", "its pod is killed", 0.2)
    after = [fleet.send("work", 0.6) for _ in range(4)]
    pods: list[Process] = fleet.start("pod", ready=False, **many)

    def with_a_living_pod(condition: Callable[[], Any]) -> Any:
        """A condition, asked while somebody starts the pod anew whenever it is gone."""
        if not pods[-1].running:
            pods.extend(fleet.start("pod", ready=False, **many))
        return condition()

    fleet.wait(lambda: with_a_living_pod(fleet.dead), "a dead letter", timeout_s=80.0)
    (letter,) = letters(fleet).values()
    assert (letter.task_id, letter.deliveries, letter.reason) == (task, LIMIT, "pod lost")
    assert [failure[2:] for failure in letter.history] == [("pod lost", "it was started anew under its name")] * LIMIT
    assert len({failure.member for failure in letter.history}) == LIMIT
    assert fleet.started(task) == LIMIT
    everything = [*before, *after]
    done = lambda: set(fleet.workers.done()) == set(everything)  # noqa: E731 - asked once in a while
    fleet.wait(lambda: with_a_living_pod(done), "the neighbours done", timeout_s=40.0)
    assert len(pods) == 1 + LIMIT, "nothing else ended a pod"
    assert sorted(fleet.workers.done()) == sorted(everything), "and each of them once"
    mend_and_requeue(fleet, task)


@on_every_pool
def test_what_celery_lets_go_without_a_word_is_a_failure_like_others(fleet: Fleet, pool: str) -> None:
    """Told that there is no memory, exiting, shutting its worker down, rejecting: no pod and no slot is lost."""
    (pod,) = fleet.start("pod", pool=pool, concurrency=1 if pool == "solo" else 2, **SETTINGS)
    joins = len(fleet.journal("join"))
    hungry, leaving = fleet.send("poison", "out of memory, told"), fleet.send("poison", "it exits")
    ending = fleet.send("poison", "it shuts down")
    rejected = fleet.send("poison", "it rejects")
    good = fleet.send("work")
    fleet.wait(lambda: set(letters(fleet)) == {hungry, leaving, ending, rejected}, "four dead letters", timeout_s=60.0)
    fleet.wait_done(good)
    for task, deliveries, reason, text in (
        (hungry, LIMIT, "crashed", "MemoryError"),
        (leaving, LIMIT, "crashed", "SystemExit"),
        (ending, LIMIT, "crashed", "WorkerShutdown"),
        (rejected, 1, "rejected", "ValueError: invalid literal for int()"),
    ):
        letter = letters(fleet)[task]
        assert (fleet.started(task), letter.deliveries, letter.reason) == (deliveries, deliveries, reason)
        assert len(letter.history) == deliveries
        for failure in letter.history:
            assert text in failure.text
            assert "workload.py" in failure.text, "with its traceback"
            assert len(failure.text.encode()) <= 4096
    assert pod.running
    assert len(fleet.journal("join")) == joins
    fleet.wait(lambda: fleet.counts().busy == 0, "the slot is free")
    mend_and_requeue(fleet, hungry, leaving, ending, rejected)
