# pyright: basic
"""The Celery app that the tests' worker processes run. Its address and its brake come from the environment."""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis
from billiard.pool import Worker as PoolWorker
from celery import Celery
from celery.exceptions import Reject, WorkerShutdown

import throttle
from throttle.errors import PermanentError, TemporaryError
from throttle.policy import Backoff, Limit, Retries, TimeLimits
from throttle.worker import memory

if TYPE_CHECKING:
    from collections.abc import Callable

app = Celery("workload", broker=os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
DEFAULTS = {
    "task_ignore_result": True,
    "worker_hijack_root_logger": False,
    "broker_connection_retry_on_startup": True,
}
app.conf.update(DEFAULTS | json.loads(os.environ.get("WORKLOAD_CONFIG", "{}")))


def policies(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `install` as JSON writes them, with their policies made."""
    made = {"time_limits": (TimeLimits, Limit), "retries": (Retries, Backoff)}
    for name, (policy, entry) in made.items():
        if name in given:
            values = dict(given[name])
            values["default"] = entry(*values.get("default", ()))
            values["queues"] = {queue: entry(*value) for queue, value in values.get("queues", {}).items()}
            given[name] = policy(**{key: tuple(v) if isinstance(v, list) else v for key, v in values.items()})
    return given


throttle.install(app, **policies(json.loads(os.environ.get("WORKLOAD_INSTALL", "{}"))))


@app.task
def work(seconds: float = 0.0) -> None:
    """Take some time."""
    time.sleep(seconds)


@app.task(acks_late=False)
def early(seconds: float = 0.0) -> None:
    """Take some time, acknowledged before."""
    time.sleep(seconds)


@app.task(bind=True, max_retries=3)
def retried(self: Any) -> None:
    """Fail once, then succeed."""
    if self.request.retries == 0:
        raise self.retry(countdown=0.1)


class Unlike(Exception):
    """An error that no parent process can unpickle."""

    def __init__(self, first: str, second: object) -> None:
        super().__init__(first)
        self.second = second


ERRORS: dict[str, Callable[[], Exception]] = {
    "temporary": lambda: TemporaryError("try again"),
    "permanent": lambda: PermanentError("never"),
    "plain": lambda: ValueError("as it was asked to"),
    "listed": lambda: ConnectionResetError("it was reset"),
    "hopeless": lambda: Unlike("it cannot be sent", lambda: None),
}


def fail(how: str) -> None:
    """Raise one of `ERRORS`."""
    error = ERRORS[how]()
    raise error


@app.task(bind=True)
def failing(self: Any, how: str, times: int = 99) -> None:
    """Fail in one of the ways of `ERRORS`, so often; then succeed."""
    if self.request.retries < times:
        fail(how)


@app.task(max_retries=1, retry_backoff=0)
def failing_once(how: str) -> None:
    """Fail, with a policy of its own."""
    fail(how)


@app.task(autoretry_for=(Exception,), max_retries=2, retry_backoff=False, default_retry_delay=0)
def automatic(how: str) -> None:
    """Fail, with Celery's own retries."""
    fail(how)


@app.task(bind=True, max_retries=1, dead_letter=False)
def quiet(self: Any) -> None:
    """Fail in each of its tries, and want no dead letter."""
    raise self.retry(countdown=0)


@app.task(bind=True, max_retries=1)
def ends_in_its_last_try(self: Any, how: str) -> None:
    """Ask for its one retry, and end there from outside."""
    if self.request.retries == 0:
        raise self.retry(countdown=0)
    poison(how)


@app.task(bind=True)
def dies_between(self: Any) -> None:
    """The first time, publish a retry and kill the pod before the acknowledgement."""
    with redis.Redis.from_url(app.conf.broker_url) as client:
        first = client.incr(f"seen:{self.request.id}") == 1
    if self.request.retries == 0:
        self.retry(countdown=0, throw=False)
    if first:
        os.killpg(os.getpgrp(), signal.SIGKILL)


@app.task(time_limit=50, soft_time_limit=40)
def limited() -> None:
    """Have limits of its own."""


@app.task
def resident() -> int:
    """Tell how much memory its process has."""
    return memory.resident()


@app.task
def large(blocks: int) -> None:
    """Use memory in small blocks, and leave a last one that keeps the heap from shrinking by itself."""
    used = [bytearray(50_000) for _ in range(blocks)]
    KEPT.append(bytearray(50_000))
    used.clear()


KEPT: list[bytearray] = []


@app.task(bind=True)
def rejecting(self: Any, requeue: bool) -> None:  # noqa: FBT001 - a message's argument
    """Reject the first delivery."""
    with redis.Redis.from_url(app.conf.broker_url) as client:
        if client.incr(f"seen:{self.request.id}") == 1:
            raise Reject("not now", requeue=requeue)


@app.task
def hog(seconds: float) -> None:
    """Run C code that does not let go of Python's lock."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


@app.task(bind=True)
def asking(self: Any, seconds: float) -> None:
    """Ask after some time whether the take is still this pod's, and record the answer."""
    time.sleep(seconds)
    with redis.Redis.from_url(app.conf.broker_url) as client:
        client.rpush(f"asked:{self.request.id}", int(throttle.still_mine(self)))


@app.task
def garbling() -> None:
    """Write into the pipe of this process what is no answer, once."""
    with redis.Redis.from_url(app.conf.broker_url) as client:
        if client.incr("garbled") == 1:
            callers = (frame.frame.f_locals.get("self") for frame in inspect.stack())
            worker = next(each for each in callers if isinstance(each, PoolWorker))
            os.write(worker.outq._writer.fileno(), b"\0\0\0\1\1\0\0")


@app.task
def dying() -> None:
    """End the process that runs it, each time."""
    os._exit(3)


@app.task
def poison(how: str, seconds: float = 0.0) -> None:
    """End in one of the ways of `ENDINGS`, until somebody sets the key `mended`."""
    with redis.Redis.from_url(app.conf.broker_url) as client:
        if client.exists("mended"):
            return
    time.sleep(seconds)
    ENDINGS[how]()


def exhaust_memory() -> None:
    """Allocate under a limit of 64 MiB more, until there is no more; raises MemoryError."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 20), hard))
    try:
        _ = [bytearray(1 << 20) for _ in range(1024)]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def die_of_hunger() -> None:
    """Be killed for the lack of memory, as by the kernel."""
    try:
        exhaust_memory()
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)


def shut_down() -> None:
    """Raise what Celery raises to end a worker."""
    raise WorkerShutdown(3)


def refuse() -> None:
    """Reject the message for good, and say why."""
    try:
        int("nobody can do this")
    except ValueError as error:
        raise Reject(str(error), requeue=False) from error


ENDINGS: dict[str, Callable[[], object]] = {
    "its process ends": lambda: os._exit(3),
    "its pod is killed": lambda: os.killpg(os.getpgrp(), signal.SIGKILL),
    "out of memory, killed": die_of_hunger,
    "out of memory, told": exhaust_memory,
    "it exits": lambda: sys.exit(3),
    "it shuts down": shut_down,
    "it rejects": refuse,
}


@app.task(bind=True)
def draining(self: Any, how: str, step_s: float = 0.1) -> None:
    """Work on until the pod drains (asks), or past the deadline: saves and ends, finishes, or ignores it."""
    with redis.Redis.from_url(app.conf.broker_url) as client:
        if client.exists("mended"):
            return
        while not (how == "asks" and self.draining):
            try:
                time.sleep(step_s)
            except throttle.DrainDeadline:
                client.rpush(f"told:{self.request.id}", int(self.draining))
                if how == "saves":
                    raise
                if how == "finishes":
                    return


@app.task(bind=True)
def swallows(self: Any, seconds: float) -> None:
    """Take some time, whatever it is told."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        try:
            time.sleep(0.1)
        except throttle.DrainDeadline:
            continue


@app.task(bind=True, autoretry_for=(Exception,), max_retries=1, retry_backoff=False, default_retry_delay=0)
def masks(self: Any) -> None:
    """Work on until `mended` is set, and make an error of its own of whatever interrupts it, as libraries do."""
    with redis.Redis.from_url(app.conf.broker_url) as client:
        mended = False
        while not mended:
            try:
                time.sleep(0.1)
                mended = bool(client.exists("mended"))
            except Exception:  # noqa: BLE001 - as they do
                client.rpush(f"told:{self.request.id}", 1)
                message = "the work was interrupted"
                raise ConnectionError(message) from None
