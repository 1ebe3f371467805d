"""A fleet to be measured: two servers, some pods, a producer.

One server is the broker, of which every command may be counted; the other takes the records of the
tasks. Everything ends with the block that holds the fleet, and with this process in any case.
"""
# pyright: basic

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from app.local.guard import Guard
from app.local.judge import judge
from app.local.observe import PRIORITY_LISTS as PRIORITIES
from app.local.observe import message_of, task_of
from app.local.processes import Placement, is_ready, wait_ready
from app.local.replay import parse
from app.local.servers import Server
from app.local.waiting import wait_until
from benchmarks import workload
from benchmarks.arguments import SYSTEMS
from throttle.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import redis
    from celery import Celery

    from app.local.guard import Process
    from app.local.judge import Published, Verdict
    from app.local.replay import Entry

KEYS = Keys(workload.FLEET)
RATIO = 0.8


class Run(NamedTuple):
    """One task that came to its end, as it recorded it itself."""

    task: str
    pod: str
    queue: str
    take: str
    began_s: float
    ended_s: float


@dataclass(frozen=True)
class Variant:
    """What is measured: with the brake or without, on which pool, with which settings."""

    gate: str
    """``take``, ``requeue``, or none: plain Celery."""
    pool: str = "prefork"
    concurrency: int = 1
    prefetch: int = 1
    results: bool = False
    """There is a result back end, in database 1, for those tasks whose result is asked for."""
    journal: int = 0
    ttl_s: float = 30.0
    visibility_timeout_s: int = workload.HOUR_S
    arguments: tuple[str, ...] = ()
    """Further arguments of ``celery worker``."""
    server: Mapping[str, str] = field(default_factory=dict[str, str])
    """Directives of the broker's configuration; by default it keeps nothing on disk."""

    @property
    def system(self) -> str:
        """Its name in tables and JSON."""
        return next(system for system, gate in SYSTEMS.items() if gate == self.gate)


class Fleet:
    """Pods of one variant on servers of their own; a context manager."""

    app = "benchmarks.workload"
    """Module of the workers' application, which reads the environment that ``benchmarks.workload`` reads."""

    def __init__(self, variant: Variant, pods: int) -> None:
        """``pods`` are started by the block's begin, which waits until all of them consume."""
        self.variant = variant
        self.guard = Guard()
        self.pods: dict[str, Process] = {}
        self._ready: dict[str, Process] = {}
        self._count = pods

    def __enter__(self) -> Self:
        """Start everything."""
        try:
            self._start()
        except BaseException:
            self.guard.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything. What the measured pods would still do is of no interest."""
        self.producer.close()
        for pod in self.pods.values():
            pod.kill()
        self.guard.close()

    def _start(self) -> None:
        variant = self.variant
        folder = self.guard.folder("benchmark")
        self.server = Server(self.guard, options=variant.server).start()
        records = Server(self.guard).start()
        self.broker: redis.Redis = self.server.client()
        self.records: redis.Redis = records.client()
        results = self.server.url.removesuffix("/0") + "/1" if variant.results else ""
        self._placement = Placement(
            self.server.url,
            folder,
            {
                "THROTTLE_TTL": f"{variant.ttl_s:g}",
                "THROTTLE_RATIO": f"{RATIO:g}",
                "BENCH_GATE": variant.gate,
                "BENCH_PREFETCH": str(variant.prefetch),
                "BENCH_RESULTS": results,
                "BENCH_JOURNAL": str(variant.journal),
                "BENCH_VISIBILITY": str(variant.visibility_timeout_s),
                "BENCH_RECORDS": records.url,
            },
            app=self.app,
        )
        self.producer: Celery = workload.create(
            self.server.url, gate=variant.gate, results=results or None, journal=variant.journal
        )
        for number in range(1, self._count + 1):
            self.start_pod(f"pod-{number}")
        wait_ready(self.pods.values())
        if variant.gate:
            wait_until(lambda: self.broker.zcard(KEYS.alive()) == self._count, what="all pods to be counted")

    def start_pod(
        self, name: str, *, pool: str | None = None, concurrency: int | None = None, **environment: str
    ) -> Process:
        """Start a pod, or start it again under its name, and return at once.

        A pool and a concurrency other than the variant's, and further variables, are this pod's own. Without
        ``--events``: the events of tasks cost plain Celery and Headroom the same, and neither needs them.
        """
        variant = self.variant
        command = [sys.executable, "-m", "celery", "-A", self._placement.app, "worker", "--pool", pool or variant.pool]
        command += ["--concurrency", str(concurrency or variant.concurrency)]
        command += ["--hostname", f"{name}@local", "--loglevel", "INFO"]
        log = self._placement.log(name)
        log.unlink(missing_ok=True)
        self.pods[name] = self.guard.start(
            name,
            [*command, *variant.arguments],
            log=log,
            env=self._placement.environment(POD_NAME=name, **environment),
            cwd=self._placement.folder,
        )
        return self.pods[name]

    def ready(self) -> list[str]:
        """Names of the pods that consume now."""
        for name, pod in self.pods.items():
            if self._ready.get(name) is not pod and pod.running and is_ready(pod):
                self._ready[name] = pod
        return [name for name, pod in self.pods.items() if pod.running and self._ready.get(name) is pod]

    def send(self, name: str, *arguments: Any, queue: str = workload.NORMAL, result: bool = False) -> str:
        """Publish one task, as a service would that knows its name; returns its id.

        ``result`` asks for the result to be kept, where the variant has a back end.
        """
        return str(self.producer.send_task(name, arguments, queue=queue, ignore_result=not result).id)

    def runs(self, start: int = 0) -> list[Run]:
        """The tasks that came to their end, in that order, from a place in that order on."""
        raw = cast("list[bytes]", self.records.lrange(workload.RUNS, start, -1))
        return [Run(**json.loads(line)) for line in raw]

    def begun(self) -> list[str]:
        """The ids of the tasks named ``told``, once for each time that they began."""
        return [raw.decode() for raw in cast("list[bytes]", self.records.lrange(workload.BEGUN, 0, -1))]

    def done(self) -> int:
        """How many tasks came to their end; one that did twice counts twice."""
        return cast("int", self.records.llen(workload.RUNS))

    def queued(self, queues: Sequence[str] = (workload.NORMAL, workload.CRITICAL)) -> int:
        """Messages in the queues."""
        return sum(cast("int", self.broker.llen(queue + step)) for queue in queues for step in PRIORITIES)

    def held(self) -> int:
        """Messages that some pod, living or dead, has taken and not acknowledged."""
        return len(self._held())

    def remaining(self) -> set[str]:
        """Ids of the tasks whose messages are still queued, held or parked."""
        parked = cast("list[bytes]", self.broker.zrange(KEYS.parked(), 0, -1))
        found = {task_of(raw) for raw in (*self._held(), *map(message_of, parked))}
        for queue in (workload.NORMAL, workload.CRITICAL):
            for step in PRIORITIES:
                found |= set(map(task_of, cast("list[bytes]", self.broker.lrange(queue + step, 0, -1))))
        return found

    def dead_letters(self) -> set[str]:
        """Ids of the tasks whose messages were given up."""
        letters = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.broker.xrange(KEYS.dead()))
        return {task_of(fields[b"raw"]) for _, fields in letters}

    def put_back(self) -> int:
        """Messages that the gate before the pool put back, in the fleet's whole life."""
        return int(cast("bytes | None", self.broker.hget(KEYS.stats(), "requeues")) or 0)

    def told(self) -> list[dict[str, Any]]:
        """What the tasks recorded, as the judge reads it: starts and ends in the order of their times."""
        records: list[dict[str, Any]] = []
        for run in self.runs():
            told = {"task": run.task, "name": "", "pod": run.pod, "queue": run.queue, "take": run.take}
            records += [
                {**told, "what": "start", "at": run.began_s},
                {**told, "what": "end", "at": run.ended_s, "state": "SUCCESS"},
            ]
        return sorted(records, key=lambda record: record["at"])

    def capacities(self) -> set[int]:
        """How many pods normal work was allowed on, at each of the takes of the fleet's journal."""
        return {entry.number("capacity") for entry in self._journal() if entry.op == "take"}

    def verdict(self, published: Sequence[Published]) -> Verdict:
        """Have the judge replay the fleet's journal: violations of the rule, messages put back, order."""
        return judge(
            journal=self._journal(),
            published=published,
            records=self.told(),
            ratio=RATIO,
            ttl_ms=round(self.variant.ttl_s * 1000),
            remaining=self.remaining(),
            critical_queue=workload.CRITICAL,
        )

    def _journal(self) -> list[Entry]:
        return parse(cast("list[tuple[bytes, dict[bytes, bytes]]]", self.broker.xrange(KEYS.journal())))

    def _held(self) -> list[bytes]:
        """The raw messages that are held."""
        if self.variant.gate != "take":
            filed = cast("list[bytes]", self.broker.hvals("unacked"))
            return [json.dumps(json.loads(entry)[0]).encode() for entry in filed]
        keys = list(self.broker.scan_iter(KEYS.held("*"), count=1000))
        return [message_of(entry) for key in keys for entry in cast("list[bytes]", self.broker.hvals(key))]
