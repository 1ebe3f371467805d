"""At the requeue gate a connection breaks: what had not begun comes again at once, what runs is not done twice."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from app.local.proxy import Proxy
from tests.support.waiting import last
from tests.worker import test_drain as drain
from tests.worker.conftest import on_every_pool
from throttle.worker.drain import LEFT_OVER

if TYPE_CHECKING:
    from collections.abc import Generator

    from app.local.guard import Process
    from tests.worker.conftest import Fleet

REQUEUE = {"WORKLOAD_INSTALL": json.dumps({"gate": "requeue"})}


@contextmanager
def behind_a_proxy(fleet: Fleet, pool: str, **config: Any) -> Generator[tuple[Process, Proxy]]:
    """A pod at that gate, and its way to Redis."""
    url = urlsplit(fleet.client.url)
    with Proxy((url.hostname or "", url.port or 0)) as proxy:
        there = url._replace(netloc=f"{url.netloc.rpartition(':')[0]}:{proxy.port}").geturl()
        yield drain.start(fleet, pool, REDIS_URL=there, WORKLOAD_CONFIG=json.dumps(config), **REQUEUE), proxy


def freeze_while_it_waits(fleet: Fleet, pod: Process) -> None:
    """Stop a pod that waits for a message: Redis hands it the next one, and it does not look."""

    def waits() -> bool:
        pod.pause()
        commands = {client["cmd"] for client in fleet.client.client_list() if "b" in client["flags"]}
        if "brpop" not in commands:
            pod.resume()
        return "brpop" in commands

    fleet.wait(waits, "the pod to wait")


def is_done_once(fleet: Fleet, task: str, left: str = "nothing to be left") -> None:
    """Wait until it is, and acknowledged."""
    fleet.wait_done(task)
    fleet.wait(lambda: not fleet.client.keys("unacked*"), left)
    assert fleet.started(task) == 1


def is_fetched(fleet: Fleet) -> None:
    """Wait until the pod has it."""
    fleet.wait(lambda: fleet.client.hlen("unacked") == 1, "it to be fetched")


@on_every_pool
def test_what_waits_for_its_time(fleet: Fleet, pool: str) -> None:
    with behind_a_proxy(fleet, pool) as (_, proxy):
        task = fleet.send("work", countdown=3)
        is_fetched(fleet)
        proxy.cut()
        is_done_once(fleet, task)


@on_every_pool
def test_what_redis_cannot_file(fleet: Fleet, pool: str) -> None:
    """Redis is full when the pod has fetched: nobody else has the message."""
    with behind_a_proxy(fleet, pool) as (pod, _):
        freeze_while_it_waits(fleet, pod)
        task = fleet.send("work")
        fleet.wait(lambda: not drain.queued(fleet), "the pod's BRPOP to be answered")
        fleet.client.config_set("maxmemory", 1)
        pod.resume()
        fleet.wait(lambda: "Connection to broker lost" in pod.read_log(), "the pod to fail")
        last(1.0)
        fleet.client.config_set("maxmemory", 0)
        is_done_once(fleet, task)


@on_every_pool
def test_what_runs_is_not_done_twice(fleet: Fleet, pool: str) -> None:
    """By itself kombu would give it back, and another would begin it."""
    with behind_a_proxy(fleet, pool) as (_, proxy):
        task = fleet.send("work", 1.5)
        drain.runs(fleet, task)
        proxy.cut()
        is_done_once(fleet, task, "its acknowledgement to be repeated")
        assert drain.queued(fleet) == []


@on_every_pool
def test_what_waits_for_a_rate_limit(fleet: Fleet, pool: str) -> None:
    with behind_a_proxy(fleet, pool, task_default_rate_limit="1/h") as (pod, proxy):
        first, second = fleet.send("work"), fleet.send("work")
        fleet.wait_done(first)
        fleet.wait(lambda: f"{second}] received" in pod.read_log(), "it to be fetched")
        proxy.cut()
        fleet.wait(lambda: pod.read_log().count(f"{second}] received") == 2, "it to come again")
        drain.ask(drain.reach(fleet), {})
        fleet.wait(lambda: drain.queued(fleet) == [second], "it to be back")
        assert not fleet.client.keys("unacked*")


@on_every_pool
def test_the_worker_ends_right_then(fleet: Fleet, pool: str) -> None:
    with behind_a_proxy(fleet, pool) as (pod, proxy):
        task = fleet.send("work", countdown=3600)
        is_fetched(fleet)
        proxy.cut()
        pod.terminate()
        assert pod.wait(30.0) == 0, pod.read_log()
        assert drain.queued(fleet) == [task], pod.read_log() + str(fleet.client.hgetall("unacked"))
        assert not fleet.client.keys("unacked*")


@on_every_pool
def test_the_worker_ends_while_redis_is_away(fleet: Fleet, pool: str) -> None:
    with behind_a_proxy(fleet, pool) as (pod, proxy):
        fleet.send("work", countdown=3600)
        is_fetched(fleet)
        proxy.refuse()
        fleet.wait(lambda: "Connection to broker lost" in pod.read_log(), "the loss to be noticed")
        pod.terminate()
        assert pod.wait(30.0) == LEFT_OVER, pod.read_log()
        assert "1 messages stay in `unacked`" in pod.read_log()
