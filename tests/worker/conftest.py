"""Fixtures of the worker tests: pods of the app in ``workload``, and an eye on their fleet."""

# pyright: basic

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from celery import Celery

import throttle
from tests.support.waiting import wait_until
from throttle.keys import Keys
from throttle.scripts import Counts, Operations, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.local.guard import Process
    from tests.support.workers import Workers

APP = "tests.worker.workload"
KEYS = Keys()
POOLS = ("prefork", "threads", "gevent", "solo")


class Fleet:
    """Pods of the test app on one server, what they did, and what the server says about them."""

    def __init__(self, workers: Workers) -> None:
        """Look at the fleet of these workers."""
        self.workers = workers
        self.client = workers.client
        self.operations = Operations(self.client, KEYS, Rule(0.8, 3000, 5, 0))
        self.producer: Any = Celery("producer", broker=self.client.url, set_as_current=False)
        throttle.install(self.producer)

    def start(self, *names: str, pool: str = "prefork", **options: Any) -> list[Process]:
        """Start pods of these names and wait until they consume."""
        return self.workers.start(names=names, pool=pool, app=APP, THROTTLE_JOURNAL="100000", **options)

    def send(self, name: str, *args: Any, **options: Any) -> str:
        """Publish a task of the test app; returns its id."""
        return self.producer.send_task(f"{APP}.{name}", args, ignore_result=True, **options).id

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 15.0) -> Any:
        """Wait for a condition; on failure the pods' logs tell why it did not come."""
        return wait_until(condition, timeout_s, what=lambda: f"{what}; logs:\n{self.workers.logs()}")

    def wait_done(self, *task_ids: str, timeout_s: float = 20.0) -> None:
        """Wait until these tasks have succeeded and nothing is held any more."""
        missing = set(task_ids)
        self.wait(lambda: not missing - set(self.workers.done()), f"done: {missing}", timeout_s)
        self.wait(lambda: self.held() == 0, "nothing held")

    def counts(self) -> Counts:
        """The fleet in numbers."""
        return self.operations.counts()

    def journal(self, *operations: str) -> list[dict[str, str]]:
        """Entries of the log of operations, of these kinds."""
        entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.client.xrange(KEYS.journal()))
        read = [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in entries]
        return [entry for entry in read if not operations or entry["op"] in operations]

    def started(self, task_id: str) -> int:
        """How often a task began to run."""
        return sum(r["what"] == "start" and r["task"] == task_id for r in self.workers.records())

    def waiting(self) -> int:
        """Messages in the default queue, whatever their priority."""
        return sum(self.client.llen(key) for key in self.client.keys("celery*"))

    def held(self) -> int:
        """Messages that anybody holds."""
        return sum(self.client.hlen(key) for key in self.client.keys(KEYS.held("*")))

    def dead(self) -> list[str]:
        """Reasons of the dead letters."""
        entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.client.xrange(KEYS.dead()))
        return [fields[b"reason"].decode() for _, fields in entries]

    def violations(self) -> int:
        """Tasks that ran without holding their take."""
        return int(cast("bytes | None", self.client.hget(KEYS.stats(), "violations")) or 0)


@pytest.fixture
def fleet(workers: Workers) -> Iterator[Fleet]:
    """A fleet without pods on an empty Valkey."""
    made = Fleet(workers)
    yield made
    made.producer.close()


@pytest.fixture(params=POOLS)
def pool(request: pytest.FixtureRequest) -> str:
    """Each of Celery's pools."""
    return cast("str", request.param)
