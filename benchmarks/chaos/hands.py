"""Does to a fleet what the schedule says, undoes it in time, and tends the pods as Kubernetes would.

A pod that ended is started again under its name, for as long as it is wanted. Everything that befell a pod is noted
with its times, on this machine's clock, as the records of the tasks are: a task that was done twice must have met with
one of these *harms*.

Only the thread that turns the hands calls them. Nothing here waits for Redis for longer than a moment.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import redis

from app.local.processes import is_ready
from app.local.servers import ServerError
from app.local.toxics import Hold, Latency, Timeout
from benchmarks.chaos.fleet import name_of
from benchmarks.chaos.tasks import POISONED
from benchmarks.fleet import KEYS
from benchmarks.growth import children_of
from throttle.worker.drain import LEFT_OVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.local.guard import Process
    from app.local.toxics import Toxic
    from benchmarks.chaos.fleet import ChaosFleet
    from benchmarks.chaos.schedule import Deed, Kind
    from benchmarks.chaos.traffic import Traffic

SHUTDOWN_S = 45.0
"""A pod that was asked to end and is there after this time is stuck."""
NETWORKS: dict[str, Toxic] = {"hold": Hold(), "swallow": Timeout(), "slow": Latency(0.15, 0.1)}
EVERYBODY = ""
AWAY = frozenset({"redis-restart", "redis-freeze", "refuse", "hold", "swallow"})
AWAY_S = 2.0
"""Who ends so soon after one of these could not tell Redis what it had done, and says so by its exit code."""
ENDED = (0, -signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of who was made to end; by SIGTERM itself when it came before the worker had begun to listen to it."""


@dataclass
class Harm:
    """What befell a pod (or everybody), from when to when."""

    pod: str
    kind: str
    from_s: float = field(default_factory=time.time)
    to_s: float = math.inf

    def ends(self) -> None:
        """It is over now."""
        self.to_s = min(self.to_s, time.time())


class Hands:
    """Carries a schedule out."""

    def __init__(self, fleet: ChaosFleet, traffic: Traffic, tell: Callable[[str], None]) -> None:
        """``tell`` hears of each deed."""
        self.size = 1
        self.harms: list[Harm] = []
        self.counts: Counter[str] = Counter()
        self.crashes: list[str] = []
        """Processes that ended though nothing ended them."""
        self.stuck: list[str] = []
        """Pods that were asked to end and did not."""
        self._fleet, self._traffic, self._tell = fleet, traffic, tell
        self._undo: list[tuple[float, Callable[[], object]]] = []
        self._doomed: dict[str, float] = {}
        self._not_before_s: dict[str, float] = {}
        self._frozen: set[str] = set()

    def do(self, deed: Deed) -> None:
        """Carry one deed out, as far as it can be now."""
        victims = [name_of(number) for number in deed.pods]
        what = f"{deed.kind} {' '.join(victims)}{deed.size or ''}".strip()
        self._tell(what + (f" for {deed.lasts_s:g} s" if deed.lasts_s else ""))
        self.counts[deed.kind] += 1
        if not victims:
            self._to_all(deed)
        for name in victims:
            pod = self._fleet.pods.get(name)
            if pod is not None and pod.running:
                self._to_pod(deed.kind, name, pod, deed.lasts_s)

    def turn(self) -> None:
        """Undo what is due, and start the pods that are missing."""
        now_s = time.monotonic()
        due = [undo for at_s, undo in self._undo if at_s <= now_s]
        self._undo = [(at_s, undo) for at_s, undo in self._undo if at_s > now_s]
        for undo in due:
            undo()
        self._collect(now_s)
        for number in range(1, self.size + 1):
            name = name_of(number)
            if name not in self._fleet.pods and now_s >= self._not_before_s.get(name, 0.0):
                self._fleet.start_pod(name)

    def calm(self) -> None:
        """Undo everything now; the pods that are missing come with the next turn."""
        for _, undo in sorted(self._undo, key=lambda entry: entry[0]):
            undo()
        self._undo.clear()
        self._not_before_s.clear()

    # -- pods

    def _to_pod(self, kind: Kind, name: str, pod: Process, lasts_s: float) -> None:
        match kind:
            case "kill" | "kill-most":
                self._not_before_s[name] = time.monotonic() + lasts_s
                self._doomed[name] = time.monotonic()
                harm = self._harm(name, "kill")
                pod.kill()
                harm.ends()
            case "kill-child":
                # A pool that loses a process while it starts gives up, and its worker with it: Celery's own making.
                children = children_of(pod.pid) if is_ready(pod) else []
                if children:
                    # Outside prefork the only child is the stand-in, whose death is no harm to any task.
                    if self._fleet.pool_of(name) == "prefork":
                        self._harm(name, kind).ends()
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(children[0], signal.SIGKILL)
            case "restart" if name not in self._frozen:
                self._end(name, pod)
            case "freeze" if name not in self._frozen and name not in self._doomed:
                self._frozen.add(name)
                harm = self._harm(name, kind)
                pod.pause()
                self._later(lasts_s, lambda: self._thaw(name, pod, harm))
            case "refuse" | "hold" | "swallow" | "slow" | "reset":
                self._to_link(kind, name, lasts_s)
            case _:
                self.counts[kind] -= 1

    def _thaw(self, name: str, pod: Process, harm: Harm) -> None:
        self._frozen.discard(name)
        pod.resume()
        harm.ends()

    def _to_link(self, kind: str, name: str, lasts_s: float) -> None:
        link, harm = self._fleet.links[name], self._harm(name, kind)
        if kind == "reset":
            link.cut()
            harm.ends()
        elif kind == "refuse":
            link.refuse()
            self._later(lasts_s, lambda: (link.accept(), harm.ends()))
        else:
            toxic = NETWORKS[kind]
            link.add(toxic)
            self._later(lasts_s, lambda: (link.remove(toxic), harm.ends()))

    def _end(self, name: str, pod: Process) -> None:
        """Ask a pod to end in order, once."""
        if name not in self._doomed:
            self._doomed[name] = time.monotonic()
            pod.terminate()

    def _collect(self, now_s: float) -> None:
        """Note who ended, and why; see to it that who was asked to end does."""
        for name, pod in list(self._fleet.pods.items()):
            if pod.running:
                if now_s - self._doomed.get(name, now_s) > SHUTDOWN_S:
                    self.stuck.append(f"{name} ({self._fleet.pool_of(name)}): {last_line(pod)}")
                    pod.kill()
                continue
            code = pod.exit_code
            if code == POISONED:
                self.harms.append(Harm(name, "poison", time.time() - 1.0, time.time()))
            elif code == LEFT_OVER and name in self._doomed and self._is_away(name):
                self.harms.append(Harm(name, "untold", time.time() - (now_s - self._doomed[name]), time.time()))
            elif name not in self._doomed or code not in ENDED:
                self.crashes.append(f"{name} ({self._fleet.pool_of(name)}) with code {code}: {last_line(pod)}")
            self._doomed.pop(name, None)
            self._frozen.discard(name)
            self._fleet.guard.end(pod, 0)
            del self._fleet.pods[name]

    def _is_away(self, name: str) -> bool:
        """Whether Redis is out of a pod's reach, or was a moment ago."""
        since_s = time.time() - AWAY_S
        return any(h.kind in AWAY and h.pod in (EVERYBODY, name) and h.to_s >= since_s for h in self.harms)

    # -- everybody

    def _to_all(self, deed: Deed) -> None:
        fleet = self._fleet
        match deed.kind:
            case "scale":
                self.scale(deed.size)
            case "poison" | "garbage":
                self._traffic.ask(deed.kind)
            case "redis-restart":
                harm = self._harm(EVERYBODY, deed.kind)
                fleet.server.kill()
                self._later(deed.lasts_s, lambda: (fleet.server.start(), harm.ends()))
            case "redis-freeze":
                with contextlib.suppress(ServerError):  # it is down
                    server, harm = fleet.server.process, self._harm(EVERYBODY, deed.kind)
                    server.pause()
                    self._later(deed.lasts_s, lambda: (server.resume(), harm.ends()))
            case _:
                with contextlib.suppress(redis.RedisError, OSError):  # it is down
                    self._by_command(deed.kind)

    def scale(self, size: int) -> None:
        """Have so many pods from now on: end those with the highest numbers, in order, or start more."""
        self.size = size
        wanted = {name_of(number) for number in range(1, size + 1)}
        for name, pod in self._fleet.pods.items():
            if name not in wanted and pod.running:
                if name in self._frozen:
                    pod.resume()
                self._end(name, pod)

    def _by_command(self, kind: Kind) -> None:
        eye = self._fleet.eye
        match kind:
            case "flush-scripts":
                eye.script_flush()
            case "delete-bells":
                bells = list(cast("Iterator[bytes]", eye.scan_iter(KEYS.bell("*"), count=1000)))
                if bells:
                    eye.delete(*bells)
            case _:
                self._harm(EVERYBODY, kind).ends()
                eye.client_kill_filter(_type="normal", skipme=True)

    # --

    def _harm(self, pod: str, kind: str) -> Harm:
        harm = Harm(pod, kind)
        self.harms.append(harm)
        return harm

    def _later(self, after_s: float, undo: Callable[[], object]) -> None:
        self._undo.append((time.monotonic() + after_s, undo))


def last_line(pod: Process) -> str:
    """The last words of a process."""
    if not Path(pod.log).exists():
        return "(no log)"
    lines = [line for line in pod.read_log().splitlines() if line.strip()]
    return lines[-1][:200] if lines else "(none)"
