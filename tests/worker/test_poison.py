"""Messages that nobody can handle: each becomes a dead letter, no pod falls over it, and the work beside it is done."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

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
