"""A change of the total with crashes on the way, on real outboxes and a real server: nothing lost, nothing doubled.

Events happen in guilds, unique and equal ones. The active target's shard hears all of them, the pending one's two
shards each their guilds, after delays of their own. Pods die at moments that a seed draws; their successors resume from
what is saved, and are told of all that came since at once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from tasks.shards.gateway.session import Session
from tests.shards.delivering import URL, Cluster, event, until

if TYPE_CHECKING:
    from tasks.shards.delivery.delivery import Outbox
    from tasks.shards.gateway.session import Event
    from tasks.shards.vocabulary import Slot
    from tests.shards.delivering import Member

GUILDS, EVENTS = 6, 160
PACE_S = 0.015


class Row:
    """What Discord has for one session: it can be told again from any sequence."""

    def __init__(self, name: str) -> None:
        self.session = Session(name, 1, URL)
        self.events: list[Event] = []

    def add(self, content: str, of: int, name: str) -> None:
        self.events.append(event(self.session, 2 + len(self.events), content, of=of, name=name))


class Held:
    """A shard in some pod."""

    def __init__(self, row: Row, slot: Slot) -> None:
        self.row, self.slot, self.told = row, slot, 0
        self.pod: tuple[Member, Outbox] | None = None

    async def begin(self, pod: tuple[Member, Outbox]) -> None:
        """READY, or RESUME from what is saved and all that came since."""
        member, outbox = pod
        fence = member.fences[self.slot]
        session = await outbox.open(self.slot, fence)
        if session is None:
            if self.row.events:  # its pod died before it was saved: Discord forgets it, and there is another one
                self.row = Row(f"{self.row.session.id}+")
            outbox.began(self.slot, fence, self.row.session, [])
            self.told = 0
        else:
            self.told = session.sequence - 1
        self.pod = pod
        self.hear()
        outbox.settled(self.slot, fence)

    def hear(self) -> None:
        """What came since."""
        if self.pod is not None:
            member, outbox = self.pod
            while self.told < len(self.row.events):
                outbox.put(self.slot, member.fences[self.slot], self.row.events[self.told])
                self.told += 1


class Change:
    """The whole scene."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster, self.chance = cluster, random.Random(seed)
        self.a, self.members = cluster.a, 0
        self.happened: list[str] = []
        self.old = Held(Row("one"), (cluster.serving(), 0))
        self.new: list[Held] = []
        self.stack = AsyncExitStack()

    async def pod(self) -> tuple[Member, Outbox]:
        """Another pod."""
        self.members += 1
        member = self.cluster.member(f"pod-{self.members}#1")
        outbox = await self.stack.enter_async_context(member.outbox(margin_s=0.3))
        member.pending = self.a.pending
        return member, outbox

    async def take_over(self, held: Held) -> None:
        """The pod that has a shard dies with all that it had heard; another one claims it and resumes."""
        assert held.pod is not None
        member, outbox = held.pod
        held.pod = None
        await outbox.end()
        member.release(held.slot)
        pod = await self.pod()
        pod[0].claim(*held.slot)
        pod[0].sync()
        await held.begin(pod)

    def happen(self, number: int) -> None:
        """Something in a guild."""
        of = self.chance.randrange(GUILDS)
        equal = self.chance.random() < 0.3 and not any(of == other for other in self._lately)
        name = "TYPING_START" if equal else "MESSAGE_CREATE"
        content = f"typing in {of}" if equal else f"message {number} in {of}"
        self._lately = [*self._lately[-3:], of] if equal else self._lately
        self.happened.append(content)
        self.old.row.add(content, of, name)
        if self.new:
            self.new[of % 2].row.add(content, of, name)

    _lately: list[int] = []  # noqa: RUF012 - replaced, never changed

    async def run(self) -> None:
        async with self.stack:
            await self._run()

    async def _run(self) -> None:
        chance = self.chance
        self.a.release(self.old.slot)
        first = await self.pod()
        first[0].claim(*self.old.slot)
        first[0].sync()
        await self.old.begin(first)
        begin, flip = EVENTS // 5, 3 * EVENTS // 5
        crash_a = chance.choice([0, chance.randrange(begin + 5, flip - 20)])
        self.crashes = {chance.randrange(begin + 1, EVENTS): chance.randrange(2) for _ in range(chance.randrange(3))}
        for number in range(EVENTS):
            if number == begin:
                await self._begin_new()
            await self._step(number)
            if number == crash_a:
                await self.take_over(self.old)
            if number >= flip and not self.flipped:
                self.flipped = self.a.flip(self.new[0].slot[0]) == 1
        await self._finish()

    crashes: dict[int, int] = {}  # noqa: RUF012 - replaced, never changed
    """Event -> which of the new shards' pods dies after it."""
    flipped = False

    async def _step(self, number: int) -> None:
        chance = self.chance
        self.happen(number)
        for held in chance.sample([self.old, *self.new], 1 + len(self.new)):
            if chance.random() < 0.8:
                held.hear()
        await asyncio.sleep(PACE_S)
        if number in self.crashes:
            await self.take_over(self.new[self.crashes[number]])

    async def _finish(self) -> None:
        version = self.new[0].slot[0]
        for held in (self.old, *self.new):
            held.hear()
        if not self.flipped:
            await until(lambda: self.a.flip(version) == 1)
        for held in self.new:
            assert held.pod is not None
            member, outbox = held.pod
            last = 1 + len(held.row.events)

            def done(held: Held = held, member: Member = member, outbox: Outbox = outbox, last: int = last) -> bool:
                return outbox.handed_on(held.slot, member.fences[held.slot]) == last

            await until(done)

    async def _begin_new(self) -> None:
        version = self.cluster.target(2)
        if self.old.pod is not None:
            self.old.pod[0].pending = self.a.pending
        for shard in (0, 1):
            pod = await self.pod()
            pod[0].claim(version, shard)
            pod[0].sync()
            held = Held(Row(f"two-{shard}"), (version, shard))
            await held.begin(pod)
            self.new.append(held)


def scenario(cluster: Cluster, seed: int) -> list[str]:
    """Run it; AssertionError when an event was lost or doubled. Returns what was handed on."""
    change = Change(cluster, seed)
    asyncio.run(change.run())
    handed = cluster.contents()
    assert Counter(handed) == Counter(change.happened), f"seed {seed}"
    return handed
