"""A producer that knows what was accepted.

It publishes in a thread of its own, as a service would that lives through the same outages, in tides: a busy time, in
which the queue grows, and a quiet one, in which it runs dry and the pods wait for their bells. It asks for no
repetition: what was not answered may have been accepted or not, and is *doubtful*. Whatever was answered must be done.

One message in ten is published by plain Celery, which rings no bell.
"""
# pyright: basic

from __future__ import annotations

import queue
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import redis
from kombu.exceptions import OperationalError

from app.local.judge import Published
from benchmarks import workload
from benchmarks.workload import CRITICAL, NORMAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

    from benchmarks.chaos.fleet import ChaosFleet

TIDE_S = 25.0
QUIET_S = 7.0
FOREIGN = 0.1
BACKLOG = 250
"""With so many messages queued it publishes no more: at the end everything has to be done."""


class Traffic:
    """A thread that publishes until it is stopped."""

    def __init__(self, fleet: ChaosFleet, seed: int, rate: float) -> None:
        """``rate``: messages a second in the busy time."""
        self.published: list[Published] = []
        """What was accepted, in the order of sending."""
        self.doubtful: set[str] = set()
        """Tasks whose publication was not answered."""
        self.poisons: set[str] = set()
        self.retried: set[str] = set()
        """Tasks that ask to be run again, and so are published by pods as well."""
        self.garbage: list[bytes] = []
        """Messages that nobody can read, accepted."""
        self.errors: dict[str, int] = {}
        self.backlog = 0
        """Messages in the queues, as whoever looks last has seen them."""
        self._fleet, self._rate = fleet, rate
        self._chance = random.Random(seed)
        self._wishes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._foreign = workload.create(fleet.server.url, gate="")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Publish nothing more; returns when the thread has ended, for which Redis must be back."""
        self._stopped.set()
        self._thread.join()
        self._foreign.close()

    def ask(self, wish: str) -> None:
        """Have a ``poison`` or ``garbage`` published too."""
        self._wishes.put(wish)

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._stopped.wait(self._pause_s(time.monotonic() - began_s)):
            if not self._wishes.empty():
                self._fulfil(self._wishes.get())
            elif self.backlog < BACKLOG:
                self._publish_any()

    def _pause_s(self, now_s: float) -> float:
        quiet = now_s % TIDE_S > TIDE_S - QUIET_S
        return self._chance.expovariate(self._rate / (20 if quiet else 1))

    def _publish_any(self) -> None:
        chance = self._chance
        app: Celery = self._foreign if chance.random() < FOREIGN else self._fleet.producer
        lane = CRITICAL if chance.random() < 0.1 else NORMAL  # noqa: PLR2004 - a tenth
        kind = chance.choices(("short", "long", "later", "again", "fail"), (80, 3, 7, 7, 3))[0]
        match kind:
            case "again":
                task = self._publish(app, lane, "again", chance.uniform(0, 0.1), chance.randint(1, 3), chance.random())
                self.retried.add(task)
            case "later":
                self._publish(app, lane, "work", chance.uniform(0, 0.1), countdown=chance.uniform(0.1, 6.0))
            case "fail":
                self._publish(app, lane, "fail")
            case _:
                seconds = chance.uniform(0.5, 3.0) if kind == "long" else chance.uniform(0.0, 0.12)
                self._publish(app, lane, "work", seconds)

    def _publish(self, app: Celery, lane: str, name: str, *arguments: Any, **options: Any) -> str:
        task = f"{name}-{self._chance.getrandbits(64):016x}"

        def send() -> None:
            app.send_task(name, arguments, task_id=task, queue=lane, ignore_result=True, retry=False, **options)

        at_s = time.time()
        if self._answered(send):
            self.published.append(Published(task, lane, at_s))
        else:
            self.doubtful.add(task)
        return task

    def _fulfil(self, wish: str) -> None:
        if wish == "poison":
            self.poisons.add(self._publish(self._fleet.producer, NORMAL, "poison"))
            return
        raw = b"garbage %x" % self._chance.getrandbits(64)
        with redis.Redis.from_url(self._fleet.server.url) as client:
            if self._answered(lambda: client.lpush(NORMAL, raw)):
                self.garbage.append(raw)

    def _answered(self, send: Callable[[], object]) -> bool:
        try:
            send()
        except (OperationalError, redis.RedisError, OSError) as error:
            name = type(error.__cause__ or error).__name__
            self.errors[name] = self.errors.get(name, 0) + 1
            return False
        return True
