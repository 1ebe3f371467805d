"""The model of the package docstring in plain Python, to be compared with the Lua after every step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.throttle.lab import BEAT_MS, TTL_MS

Entry = tuple[int, int, str, str]  # seq, deliveries, source, raw


@dataclass
class Member:
    """One incarnation as Redis sees it."""

    beat_ms: int
    draining: bool = False
    kept_until_ms: int = 0
    held: dict[int, Entry | None] = field(default_factory=dict[int, Entry | None])
    made: int = 0


@dataclass
class Model:
    """The whole fleet as Redis should see it."""

    ratio: float
    limit: int
    now_ms: int = 1_000_000
    queues: dict[str, list[str]] = field(default_factory=lambda: {"c": [], "q": [], "r": []})
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    names: dict[str, str] = field(default_factory=dict[str, str])
    dead: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    counted: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    forgiven: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    parked: list[tuple[int, Entry]] = field(default_factory=list[tuple[int, Entry]])
    guard_ms: int | None = None
    epoch: str = ""
    seq: int = 0

    # -- the rule

    def living(self, name: str) -> bool:
        member = self.members.get(name)
        return member is not None and not member.draining and member.beat_ms > self.now_ms - TTL_MS

    def capacity(self) -> int:
        return max(1, math.floor(sum(map(self.living, self.members)) * self.ratio + 1e-9))

    def busy(self, without: str = "") -> int:
        return sum(
            self.living(name) and (bool(member.held) or member.kept_until_ms > self.now_ms)
            for name, member in self.members.items()
            if name != without
        )

    # -- messages

    def push(
        self, source: str, raw: str, deliveries: int, *, tail: bool = False, dead: bool = False, failed: bool = False
    ) -> None:
        if dead or (failed and deliveries - self.forgiven.get((source, raw), 0) >= self.limit):
            self.done_with(source, raw)
            self.dead.append((source, raw, deliveries))
            return
        if deliveries:
            self.counted[source, raw] = deliveries
        queue = self.queues[source]
        queue.append(raw) if tail else queue.insert(0, raw)

    def done_with(self, source: str, raw: str) -> None:
        self.counted.pop((source, raw), None)
        self.forgiven.pop((source, raw), None)

    def told(self, entry: Entry) -> Entry:
        """What its holder hears of an entry: the deliveries that count."""
        seq, deliveries, source, raw = entry
        return seq, deliveries - self.forgiven.get((source, raw), 0), source, raw

    def requeue(self, index: int) -> None:
        source, raw, deliveries = self.dead.pop(index)
        self.counted[source, raw] = self.forgiven[source, raw] = max(deliveries, 1)
        self.queues[source].insert(0, raw)

    def gone(self, names: list[str], *, count: int = 1) -> int:
        entries: list[Entry] = []
        for name in names:
            member = self.members.pop(name)
            entries += [entry for entry in member.held.values() if entry]
            self.names = {pod: who for pod, who in self.names.items() if who != name}
        for _, deliveries, source, raw in sorted(entries, reverse=True):
            self.push(source, raw, deliveries + count, failed=count > 0)
        return len(entries)

    def due(self) -> None:
        ready = [item for item in sorted(self.parked) if item[0] <= self.now_ms][:20]
        for item in reversed(ready):
            self.parked.remove(item)
            _, deliveries, source, raw = item[1]
            self.push(source, raw, deliveries)

    def notice(self, before_ms: int) -> int:
        silent = self.silent()
        if not silent:
            if self.guard_ms is not None and self.guard_ms <= self.now_ms:
                self.guard_ms = None
            return 0
        guard_ms = self.guard_against(silent)
        quiet = sum(member.beat_ms <= self.now_ms - TTL_MS + BEAT_MS for member in self.members.values())
        many = len(self.members) >= 4 and quiet * 2 > len(self.members)
        if guard_ms is None and (before_ms < self.now_ms - 2 * BEAT_MS or many):
            self.guard_ms = guard_ms = self.now_ms + TTL_MS
        if guard_ms is not None and guard_ms > self.now_ms:
            return 0
        return self.gone(silent)

    def silent(self) -> list[str]:
        return [name for name, member in self.members.items() if member.beat_ms <= self.now_ms - TTL_MS]

    def guard_against(self, silent: list[str]) -> int | None:
        guard_ms = self.guard_ms
        if guard_ms is None or guard_ms > self.now_ms:
            return guard_ms
        if max(member.beat_ms for member in self.members.values()) < self.now_ms - TTL_MS:
            return None
        return guard_ms if any(self.members[name].beat_ms <= guard_ms - TTL_MS for name in silent) else None

    def suspect_an_outage(self) -> None:
        newest = max((member.beat_ms for member in self.members.values()), default=None)
        if newest is not None and newest < self.now_ms - 1.5 * BEAT_MS and self.guard_against(self.silent()) is None:
            self.guard_ms = self.now_ms + TTL_MS

    # -- operations

    def join(
        self,
        name: str,
        epoch: str,
        next_id: int,
        running: dict[int, Entry | None],
        given_back: set[int],
        *,
        draining: bool,
    ) -> bool:
        pod = name.split("#", maxsplit=1)[0]
        old = self.names.get(pod)
        if old and old != name and self.members[old].beat_ms > self.now_ms - BEAT_MS:
            return False
        self.suspect_an_outage()
        if old and old != name:
            self.gone([old])
        self.epoch = self.epoch or name
        self.names[pod] = name
        member = self.members.setdefault(name, Member(self.now_ms))
        member.beat_ms, member.draining, member.kept_until_ms = self.now_ms, draining, 0
        if epoch != self.epoch:
            member.held.update(running)
        member.made = max(member.made, next_id - 1)
        for number in sorted(set(member.held) - set(running)):
            if number < next_id:
                entry = member.held.pop(number)
                if entry and number in given_back:
                    self.push(entry[2], entry[3], entry[1])
        return True

    def beat(self, name: str) -> str:
        member = self.members.get(name)
        if member is None:
            return "lost"
        self.suspect_an_outage()
        before, member.beat_ms = member.beat_ms, self.now_ms
        self.notice(before)
        self.due()
        return "draining" if member.draining else "living"

    def take(self, name: str, number: int, normal: list[str], acks: list[int] | None = None) -> Entry | str:
        for done in acks or ():
            self.ack(name, done, keep=False)
        if not self.living(name):
            return "lost"
        member = self.members[name]
        self.notice(member.beat_ms)
        self.due()
        again = member.held.get(number)
        if again:
            return self.told(again)
        if number <= member.made:
            return "stale"
        admitted = self.busy(name) < self.capacity()
        for queue in ["c", *normal]:
            if self.queues[queue] and (admitted or queue == "c"):
                raw = self.queues[queue].pop(0)
                self.seq += 1
                entry = (self.seq, self.counted.get((queue, raw), 0), queue, raw)
                member.held[number] = entry
                member.kept_until_ms, member.made = 0, number
                return self.told(entry)
        member.kept_until_ms = 0
        return "empty" if admitted else "denied"

    def ack(self, name: str, number: int, *, keep: bool) -> bool:
        member = self.members.get(name)
        if member is None or number not in member.held:
            return False
        entry = member.held.pop(number)
        if entry:
            self.done_with(entry[2], entry[3])
        member.kept_until_ms = self.now_ms + 1000 if keep and not member.held and not member.draining else 0
        return True

    def empty(self, name: str, number: int) -> bool:
        member = self.members.get(name)
        if member is None or number not in member.held:
            return False
        entry = member.held[number]
        if entry:
            self.done_with(entry[2], entry[3])
        member.held[number] = None
        return True

    def park(self, name: str, number: int, due_ms: int) -> str:
        member = self.members.get(name)
        if member is None or number not in member.held:
            return "not yours"
        return "parked" if due_ms > self.now_ms and self.back(name, number, "park", due_ms=due_ms) else "due"

    def back(self, name: str, number: int, where: str, *, due_ms: int = 0) -> bool:
        """BACK one delivery more, or PARK."""
        member = self.members.get(name)
        if member is None or number not in member.held:
            return False
        entry = member.held.pop(number)
        member.kept_until_ms = 0
        if entry and where == "park":
            self.parked.append((due_ms, entry))
        elif entry:
            self.push(entry[2], entry[3], entry[1] + 1, tail=where == "tail", dead=where == "dead", failed=True)
        return True

    def drain(self, name: str) -> str:
        member = self.members.get(name)
        if member is None:
            return "lost"
        if not member.draining:
            member.draining, member.kept_until_ms = True, 0
        return "draining"

    def leave(self, name: str) -> int:
        return self.gone([name], count=0) if name in self.members else 0

    def flush(self) -> None:
        """Redis loses all its data."""
        fresh = Model(self.ratio, self.limit, self.now_ms)
        self.__dict__.update(fresh.__dict__)
