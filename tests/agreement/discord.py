"""Discord as the pods of a simulated world meet it: what it recommends, sessions that can be resumed, identifies."""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING

from tasks.shards import vocabulary as v

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tasks.shards.vocabulary import Slot
    from tests.agreement.world import Pod, World

SESSION_S = 90.0
"""How long a session whose connection is gone can be resumed."""
USE_S = 0.25
"""A grant that is older than this is not used."""
ASK_S = 30.0
LEAST_S = 5.0
"""Between two identifies of one bucket."""


def too_close(identifies: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """Pairs of identifies of one bucket that came within 5 s: how far apart, and the bucket.

    `identifies`: time and bucket of each, in their order.
    """
    last: dict[int, float] = {}
    found: list[tuple[float, int]] = []
    for at_s, bucket in identifies:
        apart_s = at_s - last.get(bucket, -inf)
        if apart_s < LEAST_S:
            found.append((apart_s, bucket))
        last[bucket] = at_s
    return found


class Discord:
    """See the module."""

    def __init__(self, world: World) -> None:
        """Recommends 16 shards to everybody."""
        self.world = world
        self.sessions: dict[Slot, float] = {}
        """Until when a session can be resumed."""
        self.identifies: list[tuple[float, int, int]] = []
        """(time, version, shard)."""
        self.resumes = 0
        self.concurrency = 16
        self.remaining = 1000
        self.recommends: dict[str, int] = defaultdict(lambda: 16)
        """Pod -> the total that it is told."""
        self.blind: set[str] = set()
        """Pods that get no answer."""
        self.unreachable = False
        """No connection gets through any more."""
        self.refuses: Callable[[Slot], int] = lambda _slot: 0
        """With which code it closes a shard that identifies; 0: it does not."""
        self._grants: dict[tuple[str, Slot], float] = {}

    def recommend(self, total: int) -> None:
        """Tell everybody so many from now on."""
        self.recommends = defaultdict(lambda: total)

    def ask(self, pod: Pod) -> None:
        """A pod asks what is recommended, now and each half minute."""
        if not pod.alive or pod.state.left:
            return
        if pod.name not in self.blind and not pod.frozen:
            told = v.Told(self.recommends[pod.name], self.concurrency, 1000, self.remaining, 86_400_000)
            self.world.feed(pod, told)
        self.world.at(ASK_S + self.world.chance.uniform(-2, 2), lambda: self.ask(pod))

    def lose(self, pod: Pod) -> None:
        """The process of a pod is gone, and its connections with it."""
        for slot in pod.connections:
            self.sessions[slot] = self.world.now_s + SESSION_S
        pod.connections.clear()

    def connect(self, pod: Pod, slot: Slot, fence: int) -> None:
        """Resume, or ask the gate and identify."""
        if self.unreachable:
            return
        self.world.when_awake(pod, lambda: self._connect(pod, slot, fence))

    def _connect(self, pod: Pod, slot: Slot, fence: int) -> None:
        world, now_s = self.world, self.world.now_s
        if pod.connections.get(slot) != fence:
            return
        if self.sessions.pop(slot, 0.0) > now_s:
            self.resumes += 1
            world.at(world.chance.uniform(0.1, 0.4), lambda: world.feed(pod, v.Opened(slot, fence)))
            return
        world.send(pod, pod.ops.identify(*slot, fence), then=lambda raw: self._granted(pod, slot, fence, raw, now_s))
        world.at(1.0, lambda: self._ask_again(pod, slot, fence, now_s))

    def _ask_again(self, pod: Pod, slot: Slot, fence: int, asked_s: float) -> None:
        """When the answer of the gate was lost."""
        if self._grants.get((pod.state.member, slot), 0.0) < asked_s:
            self.connect(pod, slot, fence)

    def _granted(self, pod: Pod, slot: Slot, fence: int, wait_ms: int, asked_s: float) -> None:
        world = self.world
        self._grants[pod.state.member, slot] = asked_s
        if wait_ms == 0 and world.now_s - asked_s <= USE_S and pod.connections.get(slot) == fence:
            self.identifies.append((world.now_s, *slot))
            code = self.refuses(slot)
            if code:
                del pod.connections[slot]
                world.feed(pod, v.Closed(slot, fence, f"closed with {code}", code))
                return
            world.at(world.chance.uniform(0.3, 2), lambda: world.feed(pod, v.Opened(slot, fence)))
        else:  # also when it is not ours: a Redis that lost its data may not know it yet
            world.at(wait_ms / 1000 if wait_ms > 0 else 0.5, lambda: self.connect(pod, slot, fence))

    def disconnect(self, pod: Pod, slot: Slot, fence: int, how: v.How) -> None:
        """A pod ends a connection; one that is handed over can be resumed."""
        self.world.when_awake(pod, lambda: self._disconnect(pod, slot, fence, how))

    def _disconnect(self, pod: Pod, slot: Slot, fence: int, how: v.How) -> None:
        if pod.connections.get(slot) == fence:
            del pod.connections[slot]
            if how != "retire":
                self.sessions[slot] = self.world.now_s + SESSION_S
        self.world.feed(pod, v.Closed(slot, fence))

    def too_close(self) -> list[tuple[float, int]]:
        """See the function."""
        return too_close(sorted((at_s, shard % self.concurrency) for at_s, _, shard in self.identifies))
