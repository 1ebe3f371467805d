"""Messages of producers that know nothing of this library: one idle pod is rung for each, whoever keeps the door."""

# pyright: basic

from __future__ import annotations

import json
import time
import uuid
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

from app.local.servers import Server
from benchmarks.monitor import Monitor
from tests.support.servers import Client
from tests.support.workers import Workers
from tests.worker.conftest import APP, KEYS, Fleet
from throttle.doorkeeper import RENEW_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.guard import Guard, Process

PODS = ("one", "two", "three", "four", "five")
SINGLE = 20
"""Messages published one at a time."""


class Foreign(Fleet):
    """A fleet, and producers of which none rings a bell."""

    def __init__(self, workers: Workers) -> None:
        """Look at the fleet of these workers; `plain` is Celery without this library."""
        super().__init__(workers)
        self.plain = Celery("foreign", broker=self.client.url, set_as_current=False)

    def close(self) -> None:
        """Close the producers."""
        self.plain.close()
        self.producer.close()

    def by_celery(self, *args: float) -> str:
        """Publish a task by a plain Celery app."""
        return self.plain.send_task(f"{APP}.work", args, ignore_result=True).id

    def by_lpush(self, *args: float) -> str:
        """Publish a task as another language would."""
        task = str(uuid.uuid4())
        delivery = {"exchange": "", "routing_key": "celery"}
        message = {
            "body": json.dumps([args, {}, {}]),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {"task": f"{APP}.work", "id": task},
            "properties": {"delivery_info": delivery, "delivery_tag": task, "priority": 0},
        }
        self.client.lpush("celery", json.dumps(message))
        return task

    def at_rest(self, pods: int) -> None:
        """Wait until so many pods wait for their bells, nothing is under way, and one of them keeps the door."""
        self.wait(lambda: self.counts().waiters == pods and self.counts().busy == 0, f"{pods} pods at rest")
        self.wait(self.keeper, "a doorkeeper")

    def keeper(self) -> str:
        """The pod that keeps the door, '' when none does."""
        found: Any = self.client.get(KEYS.namespace() + "doorkeeper")
        return found.decode().partition("#")[0] if found else ""

    def pod(self, name: str) -> Process:
        """The process of a pod."""
        return next(pod for pod in self.workers.pods if pod.name == name and pod.running)

    def one_by_one(self, pods: int) -> None:
        """Publish single messages to an idle fleet, count the bells, and see that the doorkeeper was told of most.

        A pod that happens to look by itself finds the message first now and then, and nobody is rung.
        """
        sent_s: dict[str, float] = {}
        with Monitor(self.client) as monitor:
            for number in range(SINGLE):
                at_s = time.time()
                task = (self.by_lpush, self.by_celery)[number % 2]()
                sent_s[task] = at_s
                self.wait_done(task)
                self.at_rest(pods)
        assert SINGLE // 2 <= monitor.bells <= SINGLE
        waited_s = [
            r["at"] - sent_s[r["task"]] for r in self.workers.records() if r["what"] == "start" and r["task"] in sent_s
        ]
        assert median(waited_s) < RENEW_S / 3, "found by a look that was due anyway"


@pytest.fixture(scope="module")
def foreign(guard: Guard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    """One pod; the tests, in their order, let it grow to five."""
    server = Server(guard).start()
    with Client(server) as client:
        workers = Workers(guard, client, tmp_path_factory.mktemp("foreign"))
        made = Foreign(workers)
        made.start(PODS[0], pool="threads")
        yield made
        made.close()
        workers.end()
    server.kill()


def test_one_pod_is_rung_for_each_message_and_takes_them_in_their_order(foreign: Foreign) -> None:
    foreign.at_rest(1)
    foreign.one_by_one(1)
    sent = [foreign.by_lpush() for _ in range(10)]
    foreign.wait_done(*sent)
    assert [r["task"] for r in foreign.workers.records() if r["what"] == "start"][-len(sent) :] == sent


def test_of_five_pods_one_is_rung_for_each_message(foreign: Foreign) -> None:
    foreign.start(*PODS[1:], pool="threads")
    foreign.at_rest(5)
    foreign.one_by_one(5)


def test_when_the_doorkeeper_is_killed_the_message_starts_and_the_next_one_takes_over(foreign: Foreign) -> None:
    foreign.at_rest(5)
    killed = foreign.keeper()
    foreign.pod(killed).kill()
    task = foreign.by_lpush()
    foreign.wait_done(task)
    assert foreign.started(task) == 1
    foreign.wait(lambda: foreign.keeper() not in ("", killed), "the next doorkeeper")
    foreign.wait(lambda: foreign.counts().alive == 4, "the fleet without the dead pod")
    foreign.at_rest(4)
    foreign.one_by_one(4)


def test_a_doorkeeper_that_was_frozen_finds_another_in_its_place(foreign: Foreign) -> None:
    foreign.at_rest(4)
    frozen = foreign.keeper()
    foreign.pod(frozen).pause()
    task = foreign.by_celery()
    foreign.wait_done(task)
    foreign.wait(lambda: foreign.keeper() not in ("", frozen), "the next doorkeeper")
    foreign.pod(frozen).resume()
    foreign.wait(lambda: foreign.counts().alive == 4, "the frozen pod again")
    foreign.at_rest(4)
    foreign.one_by_one(4)
    assert foreign.keeper() != frozen
    assert foreign.started(task) == 1
