"""Pods of all pools, each behind a network of its own, on a server that keeps its data whatever ends it."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.local.processes import is_ready
from app.local.proxy import Proxy
from app.local.replay import parse
from benchmarks import workload
from benchmarks.arguments import POOLS
from benchmarks.fleet import KEYS, Fleet, Variant
from throttle.scripts import Counts, Operations, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from app.local.guard import Process
    from app.local.replay import Entry

KEEPS_ITS_DATA = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
JOURNAL = 10_000_000
MAX_DELIVERIES = 5
PATIENCE_S = 0.5
"""An eye on a server that is frozen gives up after this time."""
ALONE = ("--without-mingle", "--without-gossip")

# Members that occupy a slot for as long as they hold something, and hold nothing; in one look.
HOLLOW = """
local hollow = 0
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], 'inf', 'inf')) do
  if redis.call('EXISTS', ARGV[1] .. member) == 0 then hollow = hollow + 1 end
end
return hollow
"""


class View(NamedTuple):
    """The fleet at about one instant, as Redis tells it."""

    counts: Counts
    queued: int
    held: int
    hollow: int
    """Slots that are occupied by nothing."""

    @property
    def work(self) -> int:
        """Messages that are not done with."""
        return self.queued + self.held + self.counts.parked


def name_of(number: int) -> str:
    """Of the pod with this number."""
    return f"pod-{number}"


class RecordedFleet(Fleet):
    """Pods whose tasks record their starts as well as their ends."""

    app = "benchmarks.chaos.tasks"

    def told(self, start: int = 0) -> list[dict[str, Any]]:
        """What the tasks recorded, in the order in which it was written, from a place in that order on."""
        return [json.loads(line) for line in cast("list[bytes]", self.records.lrange(workload.RUNS, start, -1))]


class ChaosFleet(RecordedFleet):
    """The fleet of a soak; a context manager. It begins with one pod."""

    def __init__(self, seed: int, ttl_s: float) -> None:
        """``seed`` decides which pod has which pool."""
        variant = Variant("take", ttl_s=ttl_s, journal=JOURNAL, arguments=ALONE, server=KEEPS_ITS_DATA)
        super().__init__(variant, pods=1)
        self.links: dict[str, Proxy] = {}
        self.started = 0
        """Pods that were started, in all."""
        self._seed = seed
        self._pools = random.Random(seed).sample(POOLS, len(POOLS))

    def _start(self) -> None:
        super()._start()
        self.eye: redis.Redis = redis.Redis.from_url(
            self.server.url,
            socket_timeout=PATIENCE_S,
            socket_connect_timeout=PATIENCE_S,
            retry=Retry(NoBackoff(), 0),
        )
        self._operations = Operations(self.eye, KEYS, Rule(0.8, round(self.variant.ttl_s * 1000), MAX_DELIVERIES))

    def __exit__(self, *details: object) -> None:
        """End everything, the networks last."""
        super().__exit__(*details)
        for link in self.links.values():
            link.close()

    @property
    def folder(self) -> Path:
        """Where the logs are."""
        return self._placement.folder

    def pool_of(self, name: str) -> str:
        """The pool of a pod, the same whenever it is started again."""
        return self._pools[int(name.rpartition("-")[2]) % len(POOLS)]

    def start_pod(self, name: str, **_: Any) -> Process:
        """Start a pod behind its network. Its earlier log is kept under another name."""
        if name not in self.links:
            self.links[name] = Proxy(("127.0.0.1", self.server.port), seed=self._seed).start()
        self.started += 1
        log = self._placement.log(name)
        if log.exists():
            log.rename(log.with_suffix(f".before-{self.started}.log"))
        pool = self.pool_of(name)
        concurrency = 1 if pool == "solo" else 1 + int(name.rpartition("-")[2]) % 2
        url = f"redis://127.0.0.1:{self.links[name].port}/0"
        return super().start_pod(name, pool=pool, concurrency=concurrency, REDIS_URL=url)

    def view(self) -> View | None:
        """The fleet now; None while Redis does not answer."""
        try:
            with self.eye.pipeline(transaction=False) as pipe:
                pipe.eval(HOLLOW, 1, KEYS.busy(), KEYS.held(""))
                for queue in (workload.NORMAL, workload.CRITICAL):
                    pipe.llen(queue)
                hollow, *queued = cast("list[int]", pipe.execute())
            holders = cast("Iterator[bytes]", self.eye.scan_iter(KEYS.held("*"), count=1000))
            held = sum(self.eye.hlen(key.decode()) for key in holders)
            return View(self._operations.counts(), sum(queued), held, hollow)
        except (redis.RedisError, OSError):
            return None

    def all_ready(self) -> bool:
        """Whether every pod consumes."""
        return all(pod.running and is_ready(pod) for pod in self.pods.values())

    def journal(self) -> list[Entry]:
        """The log of operations, from the first join on."""
        return parse(cast("list[tuple[bytes, dict[bytes, bytes]]]", self.broker.xrange(KEYS.journal())))

    def dead(self) -> list[dict[str, bytes]]:
        """The dead letters."""
        letters = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.broker.xrange(KEYS.dead()))
        return [{name.decode(): value for name, value in fields.items()} for _, fields in letters]
