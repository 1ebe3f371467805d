"""Ways in which a fleet fails, and the fleet that they are tried on; see ``recovery``."""

from __future__ import annotations

import math
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from app.local.processes import START_S, wait_ready
from app.local.proxy import Proxy
from app.local.toxics import Timeout
from app.local.waiting import wait_until
from benchmarks.arrivals import Arrivals
from benchmarks.chaos.checker import runs_of
from benchmarks.chaos.fleet import ALONE, KEEPS_ITS_DATA, RecordedFleet
from benchmarks.fleet import KEYS, RATIO, Variant

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.local.guard import Process

PODS, GONE_AT_ONCE = 6, 2
TASK_S = 0.5
QUEUED = 300
OUTAGE_S = 10.0
DEATH_S = 2.0
"""Beyond the TTL, until what a dead pod held runs elsewhere."""
REDIS_S = 5.0
"""From the return of Redis."""


class Blow(NamedTuple):
    """What was done to the fleet, with the times of this machine's clock."""

    from_s: float
    """Recovery is counted from here."""
    over_s: float
    """When nothing of the victims was left."""
    victims: tuple[str, ...] = ()
    gone: int = 0
    """So many pods stay away."""
    start_s: float | None = None


class Case(NamedTuple):
    """One way to fail."""

    strike: Callable[[RecoveryFleet], Blow]
    counted_from: str
    ttls: float = 0.0
    more_s: float = 0.0

    def target_s(self, ttl_s: float) -> float:
        """Within so many seconds."""
        return self.ttls * ttl_s + self.more_s


class RecoveryFleet(RecordedFleet):
    """Six pods under a queue that does not run dry."""

    def __init__(self, gate: str, pool: str, ttl_s: float) -> None:
        """With the brake at ``gate``, or as plain Celery with a visibility timeout as long as the TTL."""
        timeout_s = math.ceil(ttl_s)
        variant = Variant(
            gate, pool=pool, ttl_s=ttl_s, visibility_timeout_s=timeout_s, arguments=ALONE, server=KEEPS_ITS_DATA
        )
        super().__init__(variant, PODS)
        self.way: Proxy | None = None
        """The pods' way to Redis."""

    def __exit__(self, *details: object) -> None:
        """End everything, the way to Redis last."""
        super().__exit__(*details)
        if self.way is not None:
            self.way.close()

    def start_pod(self, name: str, **_: Any) -> Process:
        """Start a pod whose way to Redis can be made bad."""
        if self.way is None:
            self.way = Proxy(("127.0.0.1", self.server.port)).start()
        return super().start_pod(name, REDIS_URL=f"redis://127.0.0.1:{self.way.port}/0")

    def prepare(self) -> None:
        """Have all pods there, the queue long, and everybody at work."""
        missing = [f"pod-{number}" for number in range(1, PODS + 1) if not self._runs(f"pod-{number}")]
        for name in missing:
            self.start_pod(name)
        wait_ready(self.pods.values())
        if self.variant.gate:
            wait_until(lambda: self.broker.zcard(KEYS.alive()) == PODS, what="all pods to be counted")
        for _ in range(QUEUED - self.queued()):
            self.send("work", TASK_S)
        wait_until(lambda: len(self.working()) >= self.places(0), what="everybody to be at work")

    def places(self, gone: int) -> int:
        """How many tasks may run at once when so many pods are gone."""
        living = PODS - gone
        return max(1, math.floor(RATIO * living)) if self.variant.gate else living

    def working(self) -> list[str]:
        """The pods that run a task now, the one that began last first."""
        since_s = time.time() - 2 * TASK_S  # an older one was cut off by an earlier blow
        runs = [run for its in runs_of(self.told()).values() for run in its]
        now = [run for run in runs if run.to_s is None and run.from_s > since_s and self._runs(run.pod)]
        return list(dict.fromkeys(run.pod for run in sorted(now, key=lambda run: -run.from_s)))

    def kill(self, count: int) -> Blow:
        """Kill so many working pods at once, those that have just begun."""
        victims = tuple(self.working()[:count])
        from_s = time.time()
        for name in victims:
            self.pods[name].send(signal.SIGKILL)
        for name in victims:
            self.pods[name].wait()
        return Blow(from_s, time.time(), victims, gone=count)

    def _runs(self, name: str) -> bool:
        return name in self.pods and self.pods[name].running


# ---------------------------------------------------------------- the blows


def crash(fleet: RecoveryFleet, count: int = 1) -> Blow:
    """Kill working pods, which stay away."""
    return fleet.kill(count)


def restart(fleet: RecoveryFleet) -> Blow:
    """Kill a working pod and start it at once under its name; returns when it has returned."""
    with Arrivals(fleet.broker) as arrivals:
        blow = fleet.kill(1)
        (victim,) = blow.victims
        pod = fleet.start_pod(victim)
        if fleet.variant.gate:
            wait_until(lambda: arrivals.first_of(victim), START_S, what=f"{victim} to ask to join")
        else:
            wait_ready([pod])
        from_s = arrivals.first_of(victim) or time.time()
    return blow._replace(from_s=from_s, gone=0, start_s=round(from_s - blow.from_s, 2))


def redis_frozen(fleet: RecoveryFleet) -> Blow:
    """Have Redis answer nobody for a while."""
    fleet.server.process.pause()
    time.sleep(OUTAGE_S)
    fleet.server.process.resume()
    return Blow(time.time(), time.time())


def redis_restarted(fleet: RecoveryFleet) -> Blow:
    """Kill Redis, and start it with its data after a while."""
    fleet.server.kill()
    time.sleep(OUTAGE_S)
    fleet.server.start()
    return Blow(time.time(), time.time())


def redis_silent(fleet: RecoveryFleet) -> Blow:
    """Have the network swallow everything for a while, as when a firewall loses its table of connections."""
    if fleet.way is not None:
        with fleet.way.toxic(Timeout()):
            time.sleep(OUTAGE_S)
    return Blow(time.time(), time.time())


CASES = {
    "crash": Case(crash, "the kill", ttls=1, more_s=DEATH_S),
    "restart": Case(restart, "its return", ttls=1 / 3),
    "third": Case(partial(crash, count=GONE_AT_ONCE), "the kill", ttls=1, more_s=DEATH_S),
    "redis-frozen": Case(redis_frozen, "its return", more_s=REDIS_S),
    "redis-restarted": Case(redis_restarted, "its return", more_s=REDIS_S),
    "redis-silent": Case(redis_silent, "its return", more_s=REDIS_S),
}
