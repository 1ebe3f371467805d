"""The connections of a pod's shards: opened, closed and told of as the driver wants it (`tasks.shards.connection`).

Each shard is a `Held`: a connection on one side, the outbox on the other, the driver above. The outbox knows from Redis
whether the pod still holds a shard and whether its target serves; a holder keeps every socket open until it is told to
close it, whatever Redis does.

open   the session is read (after the CLAIM, so that no older holder can still move it), then the shard is connected;
       `opened` is told when it has settled, and again after each socket
close  hand over   nothing more is heard; what was heard is handed on, 2 s at most; 4000; another pod resumes
       retire      1000: the target is over, and so is the session
       lost        4000, and nothing is handed on: another pod has the shard
       full        4000: the outbox has no room; whoever claims it resumes from what was handed on
       over        Discord closed it for good, or it is not ours any more
`closed` is told once for each `open`, and for each `close` that finds nothing.

What a crash leaves: sessions in Redis, up to what was handed on, and sockets that the kernel closes without a code,
which ends no session.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tasks.shards.beside import Beside
from tasks.shards.gateway.connection import Connection
from tasks.shards.gateway.payloads import HAND_OVER, RETIRE
from tasks.shards.gateway.plan import Numbers
from tasks.shards.gateway.session import Shard
from tasks.shards.gateway.turns import Turns
from tasks.shards.gateway.wire import frugal_tls
from throttle import events

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable, Collection

    from tasks.shards.connection import Owner, Waiting
    from tasks.shards.delivery.delivery import Outbox
    from tasks.shards.delivery.holder import Why
    from tasks.shards.gateway.plan import Dropped
    from tasks.shards.gateway.session import Event, Session
    from tasks.shards.vocabulary import How, Slot

    Way = How | Literal["full", "over"]

logger = logging.getLogger(__name__)

FLUSH_S = 2.0
LEASE_S = 2.5
"""For a SYNC to renew the lease, or to say that it is another's; longer than one that is given up."""
FAULT_S = 5.0
STOPPED_S = 0.5
"""How often somebody looks whether a fatal code still stands."""


class Address:
    """The gateway's main address: given, or what Discord said last. In one loop."""

    def __init__(self, url: str = "") -> None:
        """`url`: given; empty: wait for `note`."""
        self.url = url
        self._given = bool(url)
        self._known = asyncio.Event()

    def note(self, url: str) -> None:
        """Discord said so."""
        if not self._given:
            self.url = url
            self._known.set()

    async def wait(self) -> str:
        """The address, as soon as there is one."""
        if not self.url:
            await self._known.wait()
        return self.url


@dataclass(frozen=True, slots=True)
class Bot:
    """Who connects."""

    token: str = field(repr=False)
    intents: int


class Holder:
    """See the module. Everything but the making happens in the driver's loop."""

    def __init__(
        self, bot: Bot, address: Address, make_outbox: Callable[[Holder], Outbox], *, numbers: Numbers | None = None
    ) -> None:
        """Nothing happens before `begin`.

        Args:
            bot: who connects.
            address: where.
            make_outbox: given this holder, which it tells what is refused.
            numbers: of each connection.
        """
        self.bot, self.address, self.numbers = bot, address, numbers or Numbers()
        self.outbox = make_outbox(self)
        self.owner: Owner
        self._held: dict[Slot, Held] = {}
        self.beside = Beside()
        self._tls: ssl.SSLContext | None = None

    # -- for the driver, see `connection.Connections`

    def begin(self, owner: Owner) -> None:
        """Know whom to tell; once, in the driver's loop."""
        self.owner = owner
        self.turns = Turns(lambda: owner.state.concurrency)
        self.outbox.begin(lambda: owner.state.head.pending, self._footing)

    def open(self, slot: Slot, total: int, fence: int) -> None:
        """Connect a shard."""
        before = self._held.get(slot)
        held = self._held[slot] = Held(self, slot, total, fence)
        held.opening = self.beside.spawn(held.open(before))

    def close(self, slot: Slot, fence: int, how: How) -> None:
        """End a connection, or the attempt."""
        held = self._held.get(slot)
        if held is None or held.fence != fence:
            asyncio.get_running_loop().call_soon(self.owner.closed, slot, fence)
        else:
            held.end(how)

    def waiting(self) -> Waiting:
        """See `connection.Connections`."""
        return self.outbox.waiting()

    async def end(self) -> None:
        """Close what is left, within `close_s`; its sessions stay."""
        every = [held.connection.close(HAND_OVER) for held in self._held.values() if held.connection]
        await asyncio.gather(*every)
        self.beside.cancel()
        await self.outbox.end()

    # -- for the outbox

    def refused(self, slot: Slot, fence: int, why: Why) -> None:
        """Nothing more of a shard goes on. Who holds it and what is over, the driver hears from SYNC."""
        held = self._held.get(slot)
        if why == "full" and held is not None and held.fence == fence:
            held.end("full")

    def holds(self, slot: Slot, fence: int) -> bool:
        """Whether the lease still covers the shard."""
        return self.owner.state.holds(slot, time.monotonic()) == fence

    def beat(self, slot: Slot, fence: int) -> None:
        """Ask Discord for a sign that all was heard; `Outbox.answered` follows, if a sign comes."""
        held = self._held.get(slot)
        if held is not None and held.fence == fence and held.connection is not None:
            held.connection.beat()

    def _footing(self) -> tuple[int, bool]:
        head = self.owner.state.head
        return head.epoch, head.guard_ms > 0

    # -- for its shards

    def tls(self, url: str) -> ssl.SSLContext | None:
        """The one context of all connections, made when the first needs it."""
        if self._tls is None and url.startswith("wss:"):
            self._tls = frugal_tls()
        return self._tls

    def forget(self, held: Held) -> None:
        """It is closed."""
        if self._held.get(held.slot) is held:
            del self._held[held.slot]


class Held:
    """One shard under one fence; the `Ear` of its connection."""

    def __init__(self, holder: Holder, slot: Slot, total: int, fence: int) -> None:
        """Nothing happens before `open`."""
        self.slot, self.fence, self._total = slot, fence, total
        self.connection: Connection | None = None
        self.opening: asyncio.Task[None] | None = None
        self.ending: asyncio.Task[None] | None = None
        self._holder, self._outbox, self._owner = holder, holder.outbox, holder.owner
        self._fatal, self._code = "", 0

    async def open(self, before: Held | None) -> None:
        """Connect, when the one `before` it in this pod is closed: a session has one connection."""
        if before is not None:
            before.end("lost")
            if before.ending is not None:
                await asyncio.wait({before.ending})
        while self.connection is None:
            try:
                await self._connect()
            except Exception:  # a fault of our own: a shard that is held must not stay without a connection
                logger.exception("shards: %s is not connected", self)
                await asyncio.sleep(FAULT_S)

    async def _connect(self) -> None:
        holder, (_, shard) = self._holder, self.slot
        session = await self._outbox.open(self.slot, self.fence)
        url = holder.address.url  # what a session says stands in for it, where Discord has not answered yet
        if not url:
            secure = session is not None and session.resume_url.startswith("wss:")
            url = session.resume_url if session and secure else await holder.address.wait()
        place = Shard(url, holder.bot.token, holder.bot.intents, shard, self._total)
        self.connection = Connection(place, self, session=session, numbers=holder.numbers, tls=holder.tls(url))
        self.connection.start()

    def end(self, how: Way) -> None:
        """Close it; the first of several ways counts."""
        if self.ending is None:
            self.ending = self._holder.beside.spawn(self._end(how))

    async def _end(self, how: Way) -> None:
        if self.opening is not None:
            self.opening.cancel()
            await asyncio.wait({self.opening})
        closing = None
        if self.connection is not None:
            closing = self._holder.beside.spawn(self.connection.close(RETIRE if how == "retire" else HAND_OVER))
            await asyncio.sleep(0)  # from here on nothing is heard
        if how in ("hand over", "over") and not await self._outbox.flush(self.slot, self.fence, FLUSH_S):
            logger.warning("shards: what %s heard was not handed on in %g s; it is heard again", self, FLUSH_S)
        if closing is not None:
            await asyncio.wait({closing})
        self._outbox.close(self.slot, self.fence)
        self._holder.forget(self)
        self._owner.closed(self.slot, self.fence, self._fatal, self._code)

    def __str__(self) -> str:
        return f"shard {self.slot[1]} of {self._total}"

    # -- what the connection says, see `Ear`

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """See `Ear`; nobody has a turn while a fatal code stands."""
        version, shard = self.slot
        pending = self._owner.state.head.pending
        place = int(pending is not None and pending.version == version), shard
        while True:
            while self._owner.state.stopped(version):  # noqa: ASYNC110 - it ends by what others do to Redis
                await asyncio.sleep(STOPPED_S)
            async with self._holder.turns.turn(place):
                if not self._owner.state.stopped(version):
                    yield
                    return

    async def may_resume(self) -> None:
        """See `Ear`. A pod that stood still asks Redis first: the session may be another's by now.

        Where Redis does not answer that either, the session is resumed: it would be lost otherwise.
        """
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + LEASE_S
        while not self._holder.holds(self.slot, self.fence) and loop.time() < give_up_s:  # noqa: ASYNC110 - a lease
            await asyncio.sleep(0.05)

    async def may_identify(self) -> bool:
        """See `Ear`."""
        return await self._owner.may_identify(self.slot, self.fence)

    def began(self, session: Session, guilds: Collection[int]) -> None:
        """See `Ear`."""
        self._outbox.began(self.slot, self.fence, session, guilds)

    def heard(self, event: Event) -> None:
        """See `Ear`."""
        self._outbox.put(self.slot, self.fence, event)

    async def room(self) -> None:
        """See `Ear`."""
        await self._outbox.room(self.slot, self.fence)

    def handed_on(self) -> int:
        """See `Ear`."""
        return self._outbox.handed_on(self.slot, self.fence)

    def answered(self, sent_s: float) -> None:
        """See `Ear`."""
        self._outbox.answered(self.slot, self.fence, sent_s)

    def settled(self) -> None:
        """See `Ear`."""
        self._outbox.settled(self.slot, self.fence)
        self._owner.opened(self.slot, self.fence)

    def dropped(self, why: Dropped) -> None:
        """See `Ear`."""
        events.emit(events.SHARD_SESSION_ENDED, *self.slot, why)
        if why == "unanswered":
            logger.warning("shards: Discord answers no RESUME of %s; it identifies, and what it missed is lost", self)
        else:
            logger.info("shards: Discord has ended the session of %s; it identifies", self)
        self._outbox.dropped(self.slot, self.fence)

    def lost(self, why: str, after_s: float) -> None:
        """See `Ear`."""
        level = logging.WARNING if after_s >= self._holder.numbers.breaker_pause_s else logging.INFO
        logger.log(level, "shards: %s: %s; the next try is in %.1f s", self, why, after_s)
        if self.connection is not None and self._holder.address.url:
            self.connection.follow(self._holder.address.url)
        self._outbox.lost(self.slot, self.fence)
        self._owner.lost(self.slot, self.fence)

    def over(self, why: str, *, fatal: bool, code: int) -> None:
        """See `Ear`."""
        if fatal:
            logger.error("shards: %s is over: %s", self, why)
            self._fatal, self._code = why, code
        self.end("over")
