# pyright: basic
"""The app of the feature tests, made the same way in a worker and in the test that sends it work.

Its tasks are the smallest that show a feature. Each start and end is written to `RUNS` on the fleet's server, over a
plain TCP connection of its own: what is recorded does not depend on the transport, the prefix or the protocol under
test.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import redis
from celery import Celery
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from celery.signals import task_postrun, task_prerun
from google.protobuf.struct_pb2 import Struct
from kombu.common import Broadcast
from kombu.entity import Exchange, Queue
from kombu.serialization import register

import throttle

RUNS = "features:runs"
KEEP_S = 3600
PATIENCE_S = 15.0
TASKS = []


def _dump(body: Any) -> bytes:
    """A body as a protobuf message: the well-known Struct, which holds what JSON can say."""
    message = Struct()
    message.update({"body": json.dumps(body)})
    return message.SerializeToString()


def _load(raw: bytes) -> Any:
    message = Struct()
    message.ParseFromString(bytes(raw))
    return json.loads(str(message["body"]))


register("protobuf", _dump, _load, content_type="application/x-protobuf", content_encoding="binary")


def task(**options: Any) -> Any:
    """Note a function as a task of every app that `make` makes."""

    def note(function: Any) -> Any:
        TASKS.append((function, options))
        return function

    return note


def make(broker: str, server: str, *, config: dict[str, Any], install: dict[str, Any]) -> Celery:
    """The app on a broker's address; `server` is the same by TCP, for results and records."""
    app = Celery("features", broker=broker, backend=server, set_as_current=False)
    app.conf.update(
        accept_content=["json", "msgpack", "protobuf"],
        task_queues=[
            Queue("celery"),
            Queue("passing", queue_arguments={"x-expires": 60000}),
            Queue("letters", Exchange("letters", type="topic"), routing_key="letters.#"),
            Broadcast("everyone"),
        ],
        task_default_queue="celery",
        result_backend_thread_safe=True,  # one connection, whichever thread plays the scenario
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        **config,
    )
    app.conf.features_server = server
    for function, options in TASKS:
        app.task(name=function.__name__, **options)(function)
    throttle.install(app, **install)
    return app


def client_of(request_app: Any) -> redis.Redis:
    """A connection of this process to the server, by TCP."""
    return redis.Redis.from_url(request_app.conf.features_server, socket_timeout=None)


def _record(what: str, task: Any, state: str = "") -> None:
    request = task.request
    mark = (request.properties or {}).get("headroom", {})
    record = {
        "what": what,
        "state": state,
        "task": request.id,
        "name": task.name,
        "pod": str(request.hostname).partition("@")[0],
        "pid": os.getpid(),
        "at": time.time(),
        "take": mark.get("take", mark.get("permit")),
        "queue": (request.delivery_info or {}).get("routing_key"),
        "redelivered": bool((request.delivery_info or {}).get("redelivered")),
    }
    with client_of(task.app) as client:
        client.rpush(RUNS, json.dumps(record))
        client.expire(RUNS, KEEP_S)


def record_start(task: Any = None, **_: Any) -> None:
    """Before the first line of a task."""
    if "features_server" in task.app.conf:
        _record("start", task)


def record_end(task: Any = None, state: str | None = None, **_: Any) -> None:
    """After its last."""
    if "features_server" in task.app.conf:
        _record("end", task, state or "")


task_prerun.connect(record_start)
task_postrun.connect(record_end)


@task()
def add(*numbers: int) -> int:
    """Return a sum."""
    return sum(numbers[0]) if len(numbers) == 1 and isinstance(numbers[0], list) else sum(numbers)


@task()
def work(seconds: float = 0.0) -> None:
    """Take some time."""
    time.sleep(seconds)


@task(bind=True)
def wait_for(self: Any, key: str) -> None:
    """Run until somebody pushes to a list; the token stays for the others that wait for it."""
    with client_of(self.app) as client:
        if client.brpop([key], PATIENCE_S) is None:
            raise TimeoutError(key)
        client.lpush(key, "1")
        client.expire(key, KEEP_S)


@task(bind=True)
def meet(self: Any, key: str, count: int) -> int:
    """Wait until so many of these run at once; return how many came."""
    give_up_s = time.monotonic() + PATIENCE_S
    with client_of(self.app) as client:
        came = client.incr(key)
        client.expire(key, KEEP_S)
        while came < count and time.monotonic() < give_up_s:
            time.sleep(0.01)
            came = int(client.get(key) or 0)
    return came


@task(bind=True, max_retries=5)
def flaky(self: Any, failures: int, countdown: float = 0.0, queue: str | None = None) -> int:
    """Ask to be run again until it has failed so often; return the number of retries."""
    if self.request.retries < failures:
        raise self.retry(countdown=countdown, **({"queue": queue} if queue else {}))
    return self.request.retries


@task(bind=True, max_retries=5, retry_lane="normal")
def stubborn(self: Any, failures: int) -> int:
    """Do as `flaky` does, in its own queue."""
    return flaky(self, failures)


@task()
def raising() -> None:
    """Fail."""
    message = "as it was asked to"
    raise ValueError(message)


@task()
def ignoring() -> None:
    """End without a result."""
    raise Ignore


@task(bind=True)
def rejecting(self: Any, requeue: bool) -> str:  # noqa: FBT001 - a message's argument
    """Reject the first delivery."""
    with client_of(self.app) as client:
        first = client.incr(f"features:seen:{self.request.id}") == 1
        client.expire(f"features:seen:{self.request.id}", KEEP_S)
    if first:
        raise Reject("not now", requeue=requeue)
    return "the second time"


@task(acks_late=False, bind=True)
def early(self: Any, key: str) -> None:
    """Run as `wait_for` does, acknowledged before."""
    wait_for(self, key)


@task()
def patient() -> str:
    """Run until a soft time limit, and say so."""
    try:
        time.sleep(PATIENCE_S)
    except SoftTimeLimitExceeded:
        return "ended in time"
    return "no limit"


@task(rate_limit=None)
def limited() -> None:
    """Be what a rate limit is set for."""
