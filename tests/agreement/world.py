"""A world on a clock of its own: simulated pods and connections, the real coordinator, the real Lua on a real Redis.

Time jumps from one happening to the next. What a pod sends arrives after a while, or never; what Redis answers, too.
Pods die, freeze (what comes for them waits), are cut off, restart under their name; Redis is away, loses all, comes
back from an older snapshot, becomes another server; notifications get lost. All of it from one seed.

After each step the invariant is looked at: for no shard do two members have a lease and a fence.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from tasks.shards import operations as ops
from tasks.shards import vocabulary as v
from tasks.shards.coordinator import step, sync_call
from tasks.shards.keys import Keys
from tasks.shards.operations import Call, Operations
from tasks.shards.placement import UNLIMITED
from tests.agreement.discord import Discord
from throttle.lua import Script

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tasks.shards.vocabulary import Slot

CLOCK = "lab:clock"
_SERVER_MS = re.compile(r"local t = call\('TIME'\)\n  return [^\n]+")
BEGAN_S = 1000.0
TIMEOUT_S = 1.0
TICK_S = 0.1


class LabOperations(Operations):
    """Operations on the world's clock, some of them written otherwise."""

    changes: dict[str, str] = {}  # noqa: RUF012 - replaced, never changed
    _made: dict[tuple[str, str], Script] = {}  # noqa: RUF012 - the same for all

    def script(self, name: str) -> Script:
        """The script with clock and changes."""
        key = (name, repr(sorted(self.changes.items())))
        if key not in self._made:
            source, clocks = _SERVER_MS.subn(f"return tonumber(call('GET', '{CLOCK}'))", ops.script(name).source)
            assert clocks == 1
            for old, new in self.changes.items():
                source = source.replace(old, new)
            sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
            self._made[key] = Script(name, source, sha)
        return self._made[key]


@dataclass
class Pod:
    """One incarnation."""

    name: str
    state: v.State
    ops: LabOperations
    alive: bool = True
    frozen: bool = False
    cut_off: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list["Callable[[], None]"])
    """What came while it was frozen."""
    connections: dict[Slot, int] = field(default_factory=dict["Slot", int])
    """Open ones, with the fence under which each was opened."""


@dataclass
class Exchange:
    """One operation on its way to Redis and back."""

    world: World
    pod: Pod
    call: Call
    read: Callable[[Any], v.Event] | None
    command: v.Needed | None
    then: Callable[[Any], None] | None
    over: bool = False

    def arrive(self) -> None:
        """It reaches Redis, if there is a way."""
        world, pod = self.world, self.pod
        if not (world.away or pod.cut_off):
            raw = world.execute(pod.ops, self.call)
            world.at(world.delay_s(), lambda: world.when_awake(pod, lambda: self._answer(raw)))

    def _answer(self, raw: Any) -> None:
        if self.world.away or self.pod.cut_off or self.over:
            return
        self.over = True
        if self.read is not None:
            self.world.feed(self.pod, self.read(raw))
        if self.then is not None:
            self.then(raw)

    def give_up(self) -> None:
        """No answer came in time: the client connects anew and asks who it talks to."""
        if not self.over:
            self.over = True
            self.pod.ops.server = self.world.server
            if self.command is not None:
                self.world.feed(self.pod, v.Unanswered(self.command))


class World:
    """Pods, a Redis and a Discord; see the module."""

    changes: dict[str, str] = {}  # noqa: RUF012 - replaced, never changed
    """Lua text -> what stands there instead."""

    def __init__(
        self,
        client: redis.Redis,
        seed: int,
        *,
        numbers: v.Numbers | None = None,
        lossy: float = 0.0,
        slow_s: float = 0.02,
        changes: dict[str, str] | None = None,
    ) -> None:
        """`lossy`: share of notifications that get lost. `slow_s`: the most that a message takes."""
        self.client, self.chance = client, random.Random(seed)
        client.flushall()
        self.keys = Keys("bot")
        self.numbers = numbers or v.Numbers()
        self.lossy, self.slow_s, self.changes = lossy, slow_s, changes or self.changes
        self.now_s = BEGAN_S
        self.server = "server-1"
        self.away = False
        self.behind_s = 0.0
        """By so much the clock of Redis was set back."""
        self.pods: dict[str, Pod] = {}
        self.boots = itertools.count(1)
        self.round_trips: dict[str, int] = defaultdict(int)
        self.twice: list[str] = []
        """What the invariant found."""
        self.noticed: dict[tuple[str, int], float] = {}
        """(pod, n) -> when it knew of this change of the target."""
        self.discord = Discord(self)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._rev = -1
        self._loaded: set[str] = set()
        self._snapshot: dict[bytes, bytes] = {}

    # -- time

    def at(self, after_s: float, what: Callable[[], None]) -> None:
        """Have something happen."""
        heapq.heappush(self._heap, (self.now_s + after_s, next(self._order), what))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_s = self.now_s + seconds
        while self._heap and self._heap[0][0] <= end_s:
            self.now_s, _, what = heapq.heappop(self._heap)
            what()
        self.now_s = end_s

    def until(self, condition: Callable[[], bool], most_s: float = 120.0) -> float:
        """Let time pass until something is true; returns how long that took. AssertionError when it does not come."""
        began_s = self.now_s
        while not condition():
            assert self.now_s < began_s + most_s, f"in vain for {most_s} s: {self.describe()}"
            self.run(0.02)
        return self.now_s - began_s

    # -- pods

    def start(self, name: str, *, limit: int = UNLIMITED, votes: bool = True) -> Pod:
        """A new incarnation of a pod."""
        member = f"{name}#{next(self.boots)}"
        operations = LabOperations(self.keys, ops.Numbers(), member)
        operations.changes = self.changes
        operations.server = self.server
        pod = Pod(name, v.State(member, self.numbers._replace(limit=limit)), operations)
        self.pods[member] = pod
        self.at(self.chance.uniform(0, 0.3), lambda: self._tick(pod))
        if votes:
            self.at(self.chance.uniform(0.5, 2), lambda: self.discord.ask(pod))
        return pod

    def living(self) -> list[Pod]:
        """Pods that have not died or left."""
        return [pod for pod in self.pods.values() if pod.alive and not pod.state.left]

    def kill(self, pod: Pod) -> None:
        """SIGKILL."""
        pod.alive = False
        self.discord.lose(pod)

    def freeze(self, pod: Pod, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        pod.frozen = True
        self.at(seconds, lambda: self._thaw(pod))

    def _thaw(self, pod: Pod) -> None:
        pod.frozen = False
        waiting, pod.waiting = pod.waiting, []
        for happening in waiting:
            happening()

    def cut_off(self, pod: Pod, seconds: float) -> None:
        """Its network to Redis is gone for a while."""
        pod.cut_off = True
        self.at(seconds, lambda: setattr(pod, "cut_off", False))

    def drain(self, pod: Pod) -> None:
        """SIGTERM."""
        self.feed(pod, v.DrainAsked())

    def feed(self, pod: Pod, event: v.Event) -> None:
        """Let something come to a pod, now or when it thaws."""
        self.when_awake(pod, lambda: self._feed(pod, self._timed(event)))

    def _feed(self, pod: Pod, event: v.Event) -> None:
        pod.state, commands = step(pod.state, event)
        self.noticed.setdefault((pod.state.member, pod.state.known.n), self.now_s)
        for command in commands:
            self._carry_out(pod, command)
        self._check()

    def _timed(self, event: v.Event) -> v.Event:
        has_time = isinstance(event, v.Ticked | v.Heard | v.SyncAnswered | v.Claimed)
        return event._replace(now_s=self.now_s) if has_time else event

    def _tick(self, pod: Pod) -> None:
        if pod.alive and not pod.state.left:
            if not pod.frozen:
                self.feed(pod, v.Ticked(self.now_s))
            self.at(TICK_S, lambda: self._tick(pod))

    # -- commands

    def _carry_out(self, pod: Pod, command: v.Command) -> None:  # noqa: C901 - one line for each command
        operations, state = pod.ops, pod.state
        match command:
            case v.SendSync():
                call = sync_call(state, operations)
                self.send(pod, call, lambda raw: v.SyncAnswered(self.now_s, ops.read_synced(raw)), command)
            case v.SendClaim(version, most, shards):
                call = operations.claim(version, most, shards)
                self.send(pod, call, lambda raw: v.Claimed(self.now_s, version, shards, tuple(raw)), command)
            case v.SendRelease(slot, fence):
                self.send(pod, operations.release(*slot, fence), lambda _: v.Released(slot), command)
            case v.SendFlip(version):
                self.send(pod, operations.flip(version))
            case v.SendAbort(version, why):
                self.send(pod, operations.abort(version, why))
            case v.SendStop(slot, fence, stop):
                self.send(pod, operations.stop(*slot, fence, stop), lambda _: v.Stopped(slot), command)
            case v.SendBudget(told):
                self.send(pod, operations.budget(told.day_total, told.remaining, told.reset_after_ms, told.concurrency))
            case v.SendVote(total, rounds):
                self.send(pod, operations.vote(total, rounds))
            case v.SendLeave():
                self.send(pod, operations.leave())
            case v.Open(slot, _, fence):
                pod.connections[slot] = fence
                self.at(self.chance.uniform(0.01, 0.1), lambda: self.discord.connect(pod, slot, fence))
            case v.Close(slot, fence, how):
                self.at(self.chance.uniform(0.01, 0.3), lambda: self.discord.disconnect(pod, slot, fence, how))

    def send(
        self,
        pod: Pod,
        call: Call,
        read: Callable[[Any], v.Event] | None = None,
        command: v.Needed | None = None,
        then: Callable[[Any], None] | None = None,
    ) -> None:
        """Send an operation; its answer is fed to the pod, or that there was none."""
        self.round_trips[pod.state.member] += 1
        exchange = Exchange(self, pod, call, read, command, then)
        self.at(self.delay_s(), exchange.arrive)
        self.at(TIMEOUT_S, lambda: self.when_awake(pod, exchange.give_up))

    def when_awake(self, pod: Pod, what: Callable[[], None]) -> None:
        """Have something happen in a pod: now, when it thaws, or never."""
        if pod.frozen:
            pod.waiting.append(what)
        elif pod.alive:
            what()

    def delay_s(self) -> float:
        """What a message takes."""
        return self.chance.uniform(0.0005, self.slow_s)

    def _round_trip(self, operations: LabOperations, call: Call) -> tuple[Any, bytes | None]:
        script = operations.script(call.name)
        if script.sha not in self._loaded:
            self.client.script_load(script.source)
            self._loaded.add(script.sha)
        with self.client.pipeline(transaction=False) as pipe:
            pipe.set(CLOCK, round((self.now_s - self.behind_s) * 1000))
            pipe.execute_command(*operations.command(call))
            pipe.hget(self.keys.state(), "rev")
            _, raw, rev = cast("tuple[Any, Any, bytes | None]", pipe.execute())
        return raw, rev

    def execute(self, operations: LabOperations, call: Call) -> Any:
        """Carry an operation out on the real server, at the world's time."""
        raw, told = self._round_trip(operations, call)
        rev = int(told or 0)
        if rev != self._rev:
            self._rev = rev
            for pod in self.living():
                if self.chance.random() >= self.lossy and not pod.cut_off:
                    self.at(self.delay_s(), lambda pod=pod: self.feed(pod, v.Heard(self.now_s)))
        return raw

    # -- Redis

    def take_snapshot(self) -> None:
        """Remember all data, for `restart_redis`."""
        raw_keys = cast("list[bytes]", self.client.keys("*"))
        self._snapshot = {key: cast("bytes", self.client.dump(key)) for key in raw_keys}

    def restart_redis(self, away_s: float, how: str) -> None:
        """Redis is away; it comes back with all data, none (`empty`), or older ones (`older`), as another server."""
        self.away = True

        def back() -> None:
            self.away = False
            self.server = f"server-{next(self.boots)}"
            if how in ("empty", "older"):
                self.client.flushall()
            if how == "older":
                for key, dumped in self._snapshot.items():
                    self.client.restore(key, 0, dumped)
            for pod in self.living():
                pod.ops.server = self.server

        self.at(away_s, back)

    # -- what is true

    def holders(self, slot: Slot) -> list[str]:
        """Members that may act for a shard now."""
        return [pod.state.member for pod in self.living() if pod.state.holds(slot, self.now_s)]

    def _check(self) -> None:
        seen: dict[Slot, str] = {}
        for pod in self.living():
            if not pod.state.leased(self.now_s):
                continue
            for slot in pod.state.owns:
                if slot in seen:
                    self.twice.append(f"{self.now_s - BEGAN_S:.2f} s: {slot} of {seen[slot]} and {pod.state.member}")
                seen[slot] = pod.state.member

    def served(self, total: int) -> bool:
        """Whether each shard of the active target, which has so many, is ready in exactly one living pod."""
        for pod in self.living():
            active = pod.state.head.active
            if active is None or active.total != total or pod.state.head.pending:
                return False
        actives = {pod.state.head.active.version for pod in self.living() if pod.state.head.active}
        slots = [(version, shard) for version in actives for shard in range(total)]
        ready = [slot for pod in self.living() for slot, own in pod.state.owns.items() if own.ready]
        return bool(slots) and sorted(ready) == slots

    def loads(self) -> dict[str, int]:
        """Shards of each living pod."""
        return {pod.name: len(pod.state.owns) for pod in self.living()}

    def describe(self) -> str:
        """The world in a few lines."""
        lines = [f"at {self.now_s - BEGAN_S:.2f} s, server {self.server}, away {self.away}, twice {self.twice[:3]}"]
        for pod in self.living():
            s = pod.state
            lines.append(
                f"{s.member}: active {s.head.active}, pending {s.head.pending}, n {s.known.n}, "
                f"guard {s.head.guard_ms}, "
                f"leased {s.leased(self.now_s)}, owns {len(s.owns)} ({sum(o.ready for o in s.owns.values())} ready), "
                f"releasing {len(s.releasing)}, draining {s.draining}, members {len(s.view.members)}"
            )
        return "\n".join(lines)
