"""Fixtures of the worker tests: pods of the app in ``workload``, and an eye on their fleet."""

# pyright: basic

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pytest
from celery import Celery

import throttle
from tests.support.servers import Client
from tests.support.waiting import wait_until
from tests.support.workers import Workers
from throttle.keys import Keys
from throttle.scripts import Counts, Operations, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from app.local.guard import Guard, Process
    from tests.support.servers import StartServer

Scenario: TypeAlias = "Callable[[Fleet, str], None]"

APP = "tests.worker.workload"
KEYS = Keys()
POOLS = ("prefork", "threads", "gevent", "solo")
"""Each of Celery's pools."""


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
        return self._stat("violations")

    def put_back(self) -> int:
        """Messages that the requeue gate put back."""
        return self._stat("requeues")

    def _stat(self, name: str) -> int:
        return int(cast("bytes | None", self.client.hget(KEYS.stats(), name)) or 0)


@pytest.fixture
def fleet(workers: Workers) -> Iterator[Fleet]:
    """A fleet without pods on an empty Valkey."""
    made = Fleet(workers)
    yield made
    made.producer.close()


class EveryPool:
    """Plays one scenario on all four pools side by side, each with a server and pods of its own.

    What these tests do is wait, for a TTL or for a pod to start; side by side they wait once.
    """

    def __init__(self, guard: Guard, start_server: StartServer, folder: Path) -> None:
        """Servers and pods end with the test."""
        self._guard, self._start_server, self._folder = guard, start_server, folder

    def __call__(self, scenario: Scenario, options: Mapping[str, str]) -> None:
        """Play it, and fail with every pool's failure."""
        with ThreadPoolExecutor(len(POOLS)) as threads:
            played = {pool: threads.submit(self._play, scenario, pool, options) for pool in POOLS}
        failed = {pool: error for pool, future in played.items() if (error := future.exception()) is not None}
        for pool, error in failed.items():
            error.add_note(f"on the pool {pool}")
        if failed:
            raise ExceptionGroup(", ".join(failed), [e for e in failed.values() if isinstance(e, Exception)])

    def _play(self, scenario: Scenario, pool: str, options: Mapping[str, str]) -> None:
        folder = self._folder / pool
        folder.mkdir()
        with Client(self._start_server(options=options)) as client:
            workers = Workers(self._guard, client, folder)
            made = Fleet(workers)
            try:
                scenario(made, pool)
            finally:
                made.producer.close()
                workers.end()


@pytest.fixture
def every_pool(guard: Guard, start_server: StartServer, tmp_path: Path) -> EveryPool:
    """Plays a scenario on all four pools."""
    return EveryPool(guard, start_server, tmp_path)


def on_every_pool(scenario: Scenario, options: Mapping[str, str] | None = None) -> Callable[[EveryPool], None]:
    """A test that plays the scenario on all four pools; `options` configure their servers."""

    def test(every_pool: EveryPool) -> None:
        every_pool(scenario, options or {})

    test.__name__, test.__doc__, test.__module__ = scenario.__name__, scenario.__doc__, scenario.__module__
    return test
