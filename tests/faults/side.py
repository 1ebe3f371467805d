# pyright: basic
"""Workers of one system, plain Celery or Headroom, on a server of their own: the stage of a replay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from celery import Celery

import throttle
from app.local.processes import Placement, start_pod, wait_ready
from app.local.recorder import RUNS_KEY
from app.local.servers import Server
from app.local.waiting import wait_until
from throttle.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from app.local.guard import Guard, Process

System: TypeAlias = Literal["celery", "headroom"]
APP = "tests.faults.workload"
QUIET = ("--without-mingle", "--without-gossip", "--without-heartbeat")
MAX_DELIVERIES = 2


class Side:
    """One system. Everything that a replay asks or does is the same for both."""

    def __init__(self, guard: Guard, folder: Path, system: System, config: Mapping[str, Any]) -> None:
        """Start the server; no worker yet. `config` are settings of Celery."""
        self.system = system
        self._guard = guard
        self._server = Server(guard).start()
        self.client = self._server.client()
        folder.mkdir()
        settings = {
            "FAULTS_SYSTEM": system,
            "FAULTS_CONFIG": json.dumps(dict(config)),
            "THROTTLE_TTL": "3",
            "THROTTLE_MAX_DELIVERIES": str(MAX_DELIVERIES),
        }
        self._placement = Placement(self._server.url, folder, settings, APP)
        self._producer: Any = Celery("producer", broker=self._server.url, set_as_current=False)
        if system == "headroom":
            throttle.install(self._producer)
        self._workers: list[Process] = []

    def start(self, *names: str, pool: str = "solo", concurrency: int = 1) -> list[Process]:
        """Start workers of these names and wait until they consume."""
        options: dict[str, Any] = {"pool": pool, "concurrency": concurrency, "arguments": QUIET, "events": False}
        started = [start_pod(self._guard, self._placement, name, **options) for name in names]
        self._workers += started
        wait_ready(started)
        return started

    def end(self) -> None:
        """Kill everything."""
        for worker in self._workers:
            self._guard.end(worker, patience_s=0)
        self._producer.close()
        self.client.close()
        self._server.kill()

    def send(self, task: str, *arguments: Any, **options: Any) -> str:
        """Publish a task of the workload; returns its id."""
        return self._producer.send_task(f"{APP}.{task}", arguments, ignore_result=True, **options).id

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 20.0) -> Any:
        """Wait for a condition; on failure the logs tell why it did not come."""

        def story() -> str:
            return f"{self.system}: {what}; logs:\n" + "\n".join(w.read_log()[-3000:] for w in self._workers)

        return wait_until(condition, timeout_s, what=story)

    def records(self, what: str, *tasks: str) -> list[dict[str, Any]]:
        """Starts, or ends in success, of these tasks."""
        raw: Any = self.client.lrange(RUNS_KEY, 0, -1)
        found = [record for record in map(json.loads, raw) if record["what"] == what and record["task"] in tasks]
        return [record for record in found if what == "start" or record["state"] == "SUCCESS"]

    def starts(self, *tasks: str) -> int:
        """How often these began to run."""
        return len(self.records("start", *tasks))

    def ends(self, *tasks: str) -> int:
        """How often these succeeded."""
        return len(self.records("end", *tasks))

    def count(self, key: str) -> int:
        """Entries of a key of any type that a message may be in."""
        sizes: dict[bytes, Callable[[str], Any]] = {
            b"list": self.client.llen,
            b"hash": self.client.hlen,
            b"zset": self.client.zcard,
            b"stream": self.client.xlen,
        }
        kind: Any = self.client.type(key)
        return sizes[kind](key) if kind in sizes else 0

    def waiting(self) -> int:
        """Messages in the queue."""
        return self.count("celery")

    def unacknowledged(self, *tasks: str) -> int:
        """Messages that kombu filed for a worker: of these tasks, or all."""
        filed: Any = self.client.hvals("unacked")
        return sum(not tasks or any(task.encode() in message for task in tasks) for message in filed)

    def parked(self) -> int:
        """Messages that wait in Redis until they are due."""
        return self.count(Keys().parked())

    def dead(self) -> int:
        """Dead letters."""
        return self.count(Keys().dead())
