"""A fleet of one pod on each of Celery's pools, each behind a proxy of its own, and a load with its books."""

# pyright: basic

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, cast

import redis
from celery import Celery

import throttle
from app.local.judge import Published, judge
from app.local.observe import Observer
from app.local.processes import Placement, start_pod, wait_ready
from app.local.proxy import Proxy
from tests.support.waiting import wait_until
from tests.trouble import recorder
from throttle.keys import Keys
from throttle.scripts import Operations, Rule
from throttle.worker.faults import AWAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from app.local.guard import Guard, Process
    from app.local.judge import Verdict
    from app.local.servers import Server
    from throttle.scripts import Counts

POOLS = ("prefork", "threads", "gevent", "solo")
APP = "tests.worker.workload"
TTL_S = 3.0
RATIO = 0.8
JOURNAL = 1000000
QUEUES = ("celery", "critical")


@dataclass
class Pod:
    """One worker and its way to Redis."""

    name: str
    pool: str
    proxy: Proxy
    process: Process


@dataclass
class Books:
    """What a producer sent."""

    accepted: list[Published] = field(default_factory=list[Published])
    errors: Counter[str] = field(default_factory=Counter[str])
    """What calls raised that may or may not have been accepted."""
    may_be_lost: set[str] = field(default_factory=set[str])
    """Tasks that were in a Redis that lost its data."""
    may_be_doubled: set[str] = field(default_factory=set[str])
    """Tasks of pods that were taken for dead."""


class Fleet:
    """Pods on one server. Everything about them that a test of trouble asks or does."""

    def __init__(
        self,
        guard: Guard,
        server: Server,
        folder: Path,
        *,
        url: str = "",
        settings: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        eye: redis.Redis | None = None,
        prefix: str = "",
        app: str = APP,
        work: str = f"{APP}.work",
    ) -> None:
        """Prepare a fleet on a running server.

        Args:
            guard: owns its processes.
            server: the test's own eyes look there.
            folder: for logs and records.
            url: address that the pods are given; none: each is given that of a proxy of its own.
            settings: environment variables of the pods.
            config: Celery settings of pods and producer.
            eye: the test's own client, where the server's plain address is not enough.
            prefix: before all keys.
            app: what the pods run.
            work: its task that takes some seconds.
        """
        self.guard, self.server, self.folder, self.url = guard, server, folder, url
        self.app, self.work = app, work
        self.records_file = folder / "records.jsonl"
        self.settings = {
            "THROTTLE_TTL": f"{TTL_S:g}",
            "THROTTLE_JOURNAL": str(JOURNAL),
            "WORKLOAD_CONFIG": json.dumps(config or {}),
            recorder.VARIABLE: str(self.records_file),
            **(settings or {}),
        }
        self.pods: list[Pod] = []
        self.books = Books()
        self._journal_from = "-"
        self.client: redis.Redis = eye or server.client()
        self.keys = Keys(prefix=prefix)
        self.producer = self.make_producer(url or server.url, **(config or {}))
        self.operations = Operations(self.client, self.keys, Rule(RATIO, round(TTL_S * 1000), 5, 0))

    def make_producer(self, url: str, **options: Any) -> Any:
        """A producer's app."""
        app = Celery("producer", broker=url, set_as_current=False)
        app.conf.update(options)
        return throttle.install(app)

    def start(self, pools: Sequence[str] = POOLS, *, concurrency: int = 1, ready: bool = True, **settings: str) -> None:
        """Start a pod on each of these pools, named after it, and wait until all consume."""
        started = []
        for pool in pools:
            name = f"{pool}-{len(self.pods) + 1}"
            proxy = Proxy(("127.0.0.1", self.server.port)).start()
            started.append(Pod(name, pool, proxy, self._process(name, pool, proxy, concurrency, settings)))
            self.pods.append(started[-1])
        if ready:
            wait_ready(pod.process for pod in started)

    def _process(self, name: str, pool: str, proxy: Proxy, concurrency: int, settings: Mapping[str, str]) -> Process:
        placement = Placement(
            self.url or f"redis://127.0.0.1:{proxy.port}/0", self.folder, {**self.settings, **settings}, app=self.app
        )
        return start_pod(self.guard, placement, name, pool=pool, concurrency=concurrency, include=[recorder.__name__])

    def end(self) -> None:
        """Kill the pods and close their proxies."""
        self.producer.close()
        for pod in self.pods:
            pod.process.resume()
            self.guard.end(pod.process, patience_s=0)
            pod.proxy.close()
        self.pods.clear()
        self.client.close()

    def look_at(self, server: Server) -> None:
        """Look at the fleet on this server from now on."""
        self.client.close()
        self.server, self.client = server, server.client()
        self.operations.client = self.client

    def pod(self, pool: str) -> Pod:
        """The first pod on a pool."""
        return next(pod for pod in self.pods if pod.pool == pool)

    # -- work

    def send(self, seconds: float = 0.0, *, queue: str = "celery", task: str = "work", retry: bool = True) -> str:
        """Publish, as Celery does by itself with three more tries; once, without `retry`. Raises what the call does."""
        at_s = time.time()
        args = () if task in ("retried", "garbling") else (seconds,)
        name = self.work if task == "work" else f"{APP}.{task}"
        sent = self.producer.send_task(name, args, queue=queue, ignore_result=True, retry=retry)
        self.books.accepted.append(Published(sent.id, queue, at_s))
        return sent.id

    def try_to_send(self, seconds: float = 0.0, *, queue: str = "celery") -> None:
        """Publish, and note what came of it."""
        try:
            self.send(seconds, queue=queue, retry=False)
        except AWAY as error:
            self.books.errors[f"{type(error).__name__}: {error}"] += 1

    # -- what happened

    def records(self) -> list[dict[str, Any]]:
        """Every start and end of a task so far; the line that is just being written is not read yet."""
        if not self.records_file.exists():
            return []
        whole, _, _ = self.records_file.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def done(self) -> Counter[str]:
        """Task -> how often it succeeded."""
        return Counter(r["task"] for r in self.records() if r["what"] == "end" and r["state"] == "SUCCESS")

    def started(self, task: str) -> int:
        """How often a task began to run."""
        return sum(r["what"] == "start" and r["task"] == task for r in self.records())

    def waiting(self) -> int:
        """Messages in the queues."""
        return sum(cast("int", self.client.llen(self.keys.prefix + queue)) for queue in QUEUES)

    def running(self) -> set[str]:
        """Tasks that have begun and not ended."""
        records = self.records()
        return {r["task"] for r in records if r["what"] == "start"} - {r["task"] for r in records if r["what"] == "end"}

    def held(self) -> int:
        """Messages that anybody holds."""
        return sum(cast("int", self.client.hlen(key)) for key in self.client.keys(self.keys.held("*")))

    def counts(self) -> Counts:
        """The fleet in numbers."""
        return self.operations.counts()

    def journal(self, *operations: str) -> list[dict[str, str]]:
        """Entries of the log of operations since the books were opened, of these kinds."""
        found = self.client.xrange(self.keys.journal(), min=self._journal_from)
        entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", found)
        read = [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in entries]
        return [entry for entry in read if not operations or entry["op"] in operations]

    def tasks_of(self, entries: Iterable[Mapping[str, str]]) -> set[str]:
        """The tasks of entries of the log, by the numbers of their takes."""
        wanted = {entry["seq"] for entry in entries}
        takes = {(e["member"].partition("#")[0], e["id"]) for e in self.journal("take") if e["seq"] in wanted}
        return {r["task"] for r in self.records() if (r["pod"], str(r["take"])) in takes}

    def server_ms(self) -> int:
        """The server's time."""
        seconds, microseconds = cast("tuple[int, int]", self.client.time())
        return seconds * 1000 + microseconds // 1000

    def logs(self) -> str:
        """The last lines of every pod."""
        return "\n".join(f"--- {pod.name}\n{pod.process.read_log()[-700:]}" for pod in self.pods)

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 15.0) -> Any:
        """Wait for a condition; on failure the pods' logs tell why it did not come.

        A server that loads its data, or whose Sentinel cuts its connections, has not said yet that it holds.
        """
        refused = ""

        def holds() -> Any:
            nonlocal refused
            try:
                return condition()
            except redis.ConnectionError as error:
                refused = f"; Redis refused: {error}"
                return None

        return wait_until(holds, timeout_s, what=lambda: f"{what}{refused}; logs:\n{self.logs()}", every_s=0.02)

    def wait_done(self, tasks: Iterable[str], timeout_s: float = 20.0) -> None:
        """Wait until all of these have succeeded."""
        wanted = set(tasks)
        wait_until(
            lambda: not wanted - set(self.done()),
            timeout_s,
            what=lambda: f"tasks done: {wanted - set(self.done())}; logs:\n{self.logs()}",
        )

    # -- what must hold after each trouble

    def each_consumes(self, timeout_s: float) -> float:
        """Wait until every pod has started a task that was sent since now; returns how long it took.

        The tasks are critical, so that no pod may refuse them, and each occupies its pod for a while.
        """
        began_s = time.monotonic()
        since = len(self.records())
        missing = {pod.name for pod in self.pods}

        def all_have() -> bool:
            tasks = {self.send(0.4, queue="critical") for _ in missing}
            self.wait(lambda: tasks <= {r["task"] for r in self.records()[since:]}, "tasks to begin", timeout_s)
            missing.difference_update(r["pod"] for r in self.records()[since:])
            return not missing

        self.wait(all_have, f"{missing} to consume", timeout_s)
        return time.monotonic() - began_s

    def settles(self, timeout_s: float = TTL_S + 2) -> None:
        """Wait until all pods live, none is busy, and nothing is held or waits."""

        def is_quiet() -> bool:
            counts = self.counts()
            return (counts.alive, counts.busy, counts.silent, self.held()) == (len(self.pods), 0, 0, 0)

        wait_until(
            is_quiet,
            timeout_s,
            what=lambda: f"{len(self.pods)} pods alive and idle: {self.counts()}, {self.held()} held; {self.logs()}",
        )

    def is_well(self, timeout_s: float) -> None:
        """Wait until every pod consumes, all work is done and the counts are those of a fleet at rest."""
        self.each_consumes(timeout_s)
        self.wait(lambda: self.waiting() == 0, "the queues to run dry", timeout_s)
        self.settles()

    def open_books(self) -> None:
        """Forget what was sent so far; what is sent from now on is judged by `balance`, and `journal` begins here."""
        self.books = Books()
        last = cast("list[tuple[bytes, Any]]", self.client.xrevrange(self.keys.journal(), count=1))
        self._journal_from = f"({last[0][0].decode()}" if last else "-"

    def judged(self) -> Verdict:
        """The verdict over all that is in the books, with the journal since Redis last lost it."""
        queues = [self.keys.prefix + queue for queue in QUEUES]
        observer = Observer(self.client, fleet="default", rule=self.operations.rule, queues=queues)
        observer.keys = self.keys
        return judge(
            journal=observer.journal(),
            published=self.books.accepted,
            records=self.records(),
            ratio=RATIO,
            ttl_ms=round(TTL_S * 1000),
            remaining=observer.remaining(),
        )

    def balance(self) -> None:
        """Nothing was lost or done twice, but for what the test said of it; nothing was admitted against the rule."""
        verdict = self.judged()
        assert verdict.violations == []
        assert verdict.contradictions == []
        assert set(verdict.lost) <= self.books.may_be_lost
        assert set(verdict.doubled) <= self.books.may_be_doubled


class Load:
    """A producer that goes on whatever happens; a context manager."""

    def __init__(self, fleet: Fleet, *, per_s: float = 40.0, seconds: float = 0.05, critical: float = 0.1) -> None:
        """Send so many tasks a second of so many seconds, a share of them critical."""
        self._fleet, self._pause_s, self._seconds = fleet, 1 / per_s, seconds
        self._every = round(1 / critical) if critical else 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.failure: Exception | None = None

    def _run(self) -> None:
        number = 0
        while not self._over.wait(self._pause_s):
            number += 1
            queue = "critical" if self._every and number % self._every == 0 else "celery"
            try:
                self._fleet.try_to_send(self._seconds, queue=queue)
            except Exception as error:  # noqa: BLE001 - for the test's own thread
                self.failure = error
                return

    def __enter__(self) -> Self:
        """Begin to send."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop sending. Raises what no producer should have raised."""
        self._over.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
