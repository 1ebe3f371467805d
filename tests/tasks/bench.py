# pyright: basic
"""Pods that run resumable tasks, and the traces that these leave."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from celery import Celery
from celery.states import READY_STATES
from kombu.utils.uuid import uuid

import throttle
from app.local.processes import wait_ready
from tasks.jobs.resumable import FleetStore
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.local.guard import Process
    from tests.support.workers import Workers

APP = "tests.tasks.resumable_app"
COUNT, SECONDS = 100, 0.03
PATIENCE_S = 60.0


class Bench:
    """Pods of the test app, and the traces that their tasks leave."""

    def __init__(self, workers: Workers, store: str = "redis") -> None:
        """All pods may be busy at once."""
        self.workers = workers
        self.settings: dict[str, Any] = {
            "THROTTLE_RATIO": "1",
            "RESUMABLE_CONFIG": json.dumps({"headroom_checkpoint_store": store}),
        }
        self.app: Any = Celery("producer", broker=workers.client.url, backend=workers.client.url, set_as_current=False)
        self.app.conf.headroom_checkpoint_store = store
        throttle.install(self.app)
        self._names = itertools.count(1)

    def start(self, *pools: str) -> list[Process]:
        """One pod for each of these pools."""
        pods = [
            self.workers.start(names=[f"{pool}-{next(self._names)}"], pool=pool, app=APP, ready=False, **self.settings)[
                0
            ]
            for pool in pools
        ]
        wait_ready(pods)
        return pods

    def send(self, *args: Any, **options: Any) -> str:
        """Send the task `steps`; returns its id."""
        task_id = options.pop("task_id", None) or uuid()
        self.app.backend.forget(task_id)
        self.app.send_task(f"{APP}.steps", args, task_id=task_id, **options)
        return task_id

    def meta(self, task_id: str) -> dict[str, Any]:
        """State and result of a task, as its back end says now."""
        return self.app.backend.get_task_meta(task_id, cache=False)

    def wait_end(self, task_id: str) -> dict[str, Any]:
        """Wait until the task has ended; its state and result."""
        self.wait(lambda: self.meta(task_id)["status"] in READY_STATES, f"the end of {task_id}")
        return self.meta(task_id)

    def trace(self, task_id: str, what: str) -> list[str]:
        """What a task has left."""
        lines = cast("list[bytes]", self.workers.client.lrange(f"trace:{task_id}:{what}", 0, -1))
        return [line.decode() for line in lines]

    def steps(self, task_id: str) -> list[int]:
        """The steps that were taken, those taken twice twice."""
        return [int(step) for step in self.trace(task_id, "steps")]

    def progress(self) -> dict[str, float]:
        """Task id -> progress, as the store says."""
        return {listed.task_id: listed.progress for listed in FleetStore(self.app).list()}

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait; on failure the pods' logs tell why it did not come."""
        return wait_until(condition, PATIENCE_S, what=lambda: f"{what}; {self.workers.logs()}", every_s=0.02)

    def wait_at(self, share: float, *ids: str) -> None:
        """Wait until all of these tasks have saved that much of their progress."""
        self.wait(lambda: all(self.progress().get(task, 0) >= share for task in ids), f"{share} of {ids}")

    def assert_done(self, task: str, *, at_least: float = 0.0) -> None:
        """All steps were taken, in order, and of each death only what was not saved again."""
        ended = self.wait_end(task)
        assert (ended["status"], ended["result"]) == ("SUCCESS", COUNT), self.workers.logs()
        taken = self.steps(task)
        begun = [int(step) for step in self.trace(task, "begun")]
        assert sorted(set(taken)) == list(range(COUNT))
        saved = [0, *map(int, self.trace(task, "saved")), COUNT]
        interval = max(after - before for before, after in itertools.pairwise(sorted(set(saved))))
        redone = len(taken) - COUNT
        assert redone <= (len(begun) - 1) * (interval + 1), (redone, begun, saved)
        assert begun[-1] >= at_least * COUNT, begun


@pytest.fixture
def bench(workers: Workers) -> Iterator[Bench]:
    """Checkpoints in Redis."""
    made = Bench(workers)
    yield made
    made.app.close()
