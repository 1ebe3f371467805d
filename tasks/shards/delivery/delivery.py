"""The outbox of a pod: carries out what its backlogs ask for, over one connection to Redis and in one call at a time.

A call is a pipeline: one DELIVER for each shard that has something, and one OVERLAP for each that must look at its log.
Each of them is whole or not done; where the answer was lost all of them are asked again. Events that come while a call
is under way go with the next one, many in a call when they come fast. What can wait (a sequence without events, a look
at the log) goes four times a second at most, and what is idle asks nothing.

An outbox is bounded. When it is full the shard whose oldest event waits longest is given up: its holder is told, closes
it with a code that keeps the session, and it is resumed from the saved sequence. So nothing is lost by that either.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from tasks.shards.beside import Beside
from tasks.shards.connection import Waiting
from tasks.shards.delivery import calls
from tasks.shards.delivery.backlog import MARGIN_S, Backlog, has_room, size
from tasks.shards.delivery.callback import Callbacks
from tasks.shards.delivery.pipeline import Pipeline
from tasks.shards.delivery.sessions import Sessions
from tasks.shards.delivery.standstill import Standstill
from tasks.shards.delivery.telling import Teller
from tasks.shards.listening import ERRORS
from throttle.clock import ServerClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tasks.shards.answers import Target
    from tasks.shards.delivery.callback import Callback
    from tasks.shards.delivery.calls import Batch
    from tasks.shards.delivery.holder import Holder
    from tasks.shards.delivery.parcels import Writer
    from tasks.shards.gateway.session import Event, Session
    from tasks.shards.operations import Argument, Operations
    from tasks.shards.vocabulary import Slot

logger = logging.getLogger(__name__)

MOST_EVENTS, MOST_BYTES = 10_000, 64 * 1024 * 1024
"""In the outbox of a pod."""
LAZY_S = 0.25
AGAIN_S = 0.25


class Outbox:
    """See the module, and the package for how it is used."""

    def __init__(
        self,
        url: str,
        operations: Operations,
        writer: Writer,
        holder: Holder,
        *,
        callback: Callback | None = None,
        most: tuple[int, int] = (MOST_EVENTS, MOST_BYTES),
        margin_s: float = MARGIN_S,
    ) -> None:
        """Nothing is opened before `begin`.

        Args:
            url: of Redis, where the cluster, the queues and the fleet are.
            operations: of this member.
            writer: says which events are wanted, and makes their messages.
            holder: hears what is refused.
            callback: has the events instead of a queue; a function, or a coroutine's.
            most: events and bytes that wait in this pod at most.
            margin_s: see `backlog.MARGIN_S`.
        """
        self._redis, self._writer, self._holder = Pipeline(url), writer, holder
        self._calls = calls.Calls(operations, writer.fleet, writer.ratio)
        self._most, self._margin_s = most, margin_s
        self._backlogs: dict[Slot, Backlog] = {}
        self._busy: set[Slot] = set()
        """What may have something to ask."""
        self._pending: Callable[[], Target | None] = lambda: None
        self._footing: Callable[[], object] = lambda: None
        self._footing_was: object = None
        self._wake = asyncio.Event()
        self._moved = asyncio.Condition()
        self._beside = Beside()
        self._callbacks = Callbacks(callback, holder.holds, self._beside) if callback else None
        self._lazy_s = 0.0
        self._clock, self._standstill = ServerClock(), Standstill()
        self._teller = Teller()

    # -- from the holder

    def begin(self, pending: Callable[[], Target | None], footing: Callable[[], object] = lambda: None) -> None:
        """Start, in the loop. `pending`: as this member knows it; `footing` changes when Redis may have lost data."""
        self._pending, self._footing = pending, footing
        self._beside.spawn(self._run())
        self._beside.spawn(self._standstill.watch())

    async def open(self, slot: Slot, fence: int) -> Session | None:
        """Begin with a shard that was just claimed. None: there is no session to resume.

        Waits until Redis answers; cancel it when the shard is to be closed.
        """
        sessions = Sessions(self._redis, self._calls)
        while True:
            try:
                session = await sessions.load(slot)
                break
            except ERRORS as error:
                logger.warning("shards: the session of %s cannot be read (%s)", slot, error)
                await asyncio.sleep(AGAIN_S)
        self._backlogs[slot] = Backlog(slot, fence, session, margin_s=self._margin_s)
        self._look_at(slot)
        return session

    def began(self, slot: Slot, fence: int, session: Session, guilds: Collection[int]) -> None:
        """READY: a new session, and the guilds that it names."""
        if backlog := self._of(slot, fence):
            backlog.begin(session, guilds, time.monotonic())
            self._look_at(slot)

    def dropped(self, slot: Slot, fence: int) -> None:
        """Discord has ended the session."""
        if backlog := self._of(slot, fence):
            backlog.drop()
            self._look_at(slot)

    def put(self, slot: Slot, fence: int, event: Event) -> None:
        """An event of the current session, each in its order. Raises ValueError for one of another session."""
        backlog = self._of(slot, fence)
        if backlog is None:
            return
        wanted, now_s = self._callbacks is not None or self._writer.wants(event.name), time.monotonic()
        urgent = backlog.put(event, now_s, wanted=wanted, late=self._standstill.is_late(now_s))
        self._busy.add(slot)
        if urgent:
            self._wake.set()
        self._bound()

    def settled(self, slot: Slot, fence: int) -> None:
        """What is put from now on is heard as it happens."""
        if backlog := self._of(slot, fence):
            backlog.settle(time.monotonic())

    def answered(self, slot: Slot, fence: int, sent_s: float) -> None:
        """Discord answered a beat that was sent then: what it had sent on this socket by then was put."""
        if backlog := self._of(slot, fence):
            backlog.answered(sent_s, time.monotonic())

    def lost(self, slot: Slot, fence: int) -> None:
        """The socket is gone: until `settled`, what is put is told by a RESUME."""
        if backlog := self._of(slot, fence):
            backlog.live = False

    def handed_on(self, slot: Slot, fence: int) -> int:
        """Sequence of the current session up to which nothing need come again; 0 without a session."""
        backlog = self._of(slot, fence)
        return backlog.base if backlog else 0

    async def flush(self, slot: Slot, fence: int, timeout_s: float) -> bool:
        """Wait until all of a shard that may be handed on is. Returns whether that was so in time."""
        backlog = self._of(slot, fence)
        if backlog is None:
            return True
        self._look_at(slot)

        def done() -> bool:
            return backlog.empty or self._of(slot, fence) is None

        try:
            async with self._moved:
                await asyncio.wait_for(self._moved.wait_for(done), timeout_s)
        except asyncio.TimeoutError:  # noqa: UP041 - another class before Python 3.11
            return False
        return True

    async def room(self, slot: Slot, fence: int) -> None:
        """Wait, with what a session has missed, until there is room for more of it; what happens now does not wait."""
        async with self._moved:
            await self._moved.wait_for(lambda: has_room(self._of(slot, fence), self._backlogs.values(), self._most))

    def close(self, slot: Slot, fence: int) -> None:
        """Forget the shard."""
        if self._of(slot, fence):
            del self._backlogs[slot]
            self._busy.discard(slot)
            if self._callbacks:
                self._callbacks.end(slot)

    async def end(self) -> None:
        """Stop. What is left is heard again by whoever resumes."""
        self._beside.cancel()
        await self._redis.close()

    def waiting(self) -> Waiting:
        """What is in it."""
        every = self._backlogs.values()
        return Waiting(*size(every), min((backlog.oldest_s for backlog in every), default=inf))

    # -- inside

    def _of(self, slot: Slot, fence: int) -> Backlog | None:
        backlog = self._backlogs.get(slot)
        return backlog if backlog is not None and backlog.fence == fence else None

    def _look_at(self, slot: Slot) -> None:
        self._busy.add(slot)
        self._wake.set()

    def _bound(self) -> None:
        while any(has > most for has, most in zip(size(self._backlogs.values()), self._most, strict=True)):
            full = min(self._backlogs.values(), key=lambda backlog: backlog.oldest_s)
            self._teller.full(full)
            full.give_up()
            self._holder.refused(full.slot, full.fence, "full")

    # -- the loop

    async def _run(self) -> None:
        while True:
            now_s = time.monotonic()
            try:
                await self._turn(now_s, lazy=now_s >= self._lazy_s)
            except Exception as error:  # noqa: BLE001 - a fault of our own must not end what hands on for every shard
                self._teller.failed(error, size(self._backlogs.values())[0])
                await asyncio.sleep(AGAIN_S)

    async def _turn(self, now_s: float, *, lazy: bool) -> None:
        """Ask once, or sleep until there is something to ask."""
        if lazy:
            self._lazy_s = now_s + LAZY_S
        asked = self._gather(now_s, lazy=lazy)
        if not asked:
            await self._sleep()
            return
        try:
            await self._call(asked)
        finally:
            async with self._moved:
                self._moved.notify_all()

    async def _sleep(self) -> None:
        beside = self._busy or (self._pending() is not None and self._backlogs)
        try:
            await asyncio.wait_for(self._wake.wait(), max(0.01, self._lazy_s - time.monotonic()) if beside else LAZY_S)
        except asyncio.TimeoutError:  # noqa: UP041 - another class before Python 3.11
            return
        finally:
            self._wake.clear()

    def _gather(self, now_s: float, *, lazy: bool) -> list[tuple[Backlog, Batch | None, tuple[Argument, ...]]]:
        asked: list[tuple[Backlog, Batch | None, tuple[Argument, ...]]] = []
        self._look_at_footing()
        pending = self._pending() if lazy else None
        for slot in list(self._backlogs if pending else self._busy):
            backlog = self._backlogs.get(slot)
            if backlog is None or (backlog.idle and not pending):
                self._busy.discard(slot)
                continue
            backlog.compare(now_s, self._clock)
            if self._callbacks:
                self._callbacks.go_on(backlog, partial(self._look_at, slot))
            beside = pending is not None and pending.version != slot[0]
            if beside and backlog.wants_beat(now_s):
                self._holder.beat(slot, backlog.fence)
            writer = None if self._callbacks is not None else self._writer
            try:
                batch = backlog.batch(now_s, writer, lazy=lazy, beside=beside)
            except Exception as error:  # noqa: BLE001 - of the application's settings; the other shards go on
                self._teller.unwritten(slot, error)
                batch, backlog.pause_s = None, now_s + AGAIN_S
            if batch is not None:
                asked.append((backlog, batch, self._calls.deliver(slot, batch)))
            if (lazy or backlog.hungry) and backlog.asks_log():
                after = backlog.chapters[0].after
                asked.append((backlog, None, self._calls.overlap(slot, backlog.fence, after)))
        return asked

    def _look_at_footing(self) -> None:
        before, self._footing_was = self._footing_was, self._footing()
        if self._footing_was != before:
            for slot, backlog in self._backlogs.items():
                backlog.tell_again()
                self._busy.add(slot)

    async def _call(self, asked: list[tuple[Backlog, Batch | None, tuple[Argument, ...]]]) -> None:
        sent_s = time.monotonic()
        answers = await self._redis.ask([command for _, _, command in asked])
        now_s = time.monotonic()
        for (backlog, batch, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Exception):
                self._teller.refused(backlog.slot, answer)
                backlog.pause_s = now_s + AGAIN_S
            elif self._backlogs.get(backlog.slot) is backlog:
                self._answered(backlog, batch, answer, (sent_s + now_s) / 2)

    def _answered(self, backlog: Backlog, batch: Batch | None, answer: Any, at_s: float) -> None:
        before = backlog.standing
        if batch is None:
            log = calls.read_overlapped(answer)
            self._clock.note(log.now_ms, at_s)
            backlog.note_log(log)
        else:
            told = calls.read_delivered(answer)
            if told.now_ms:
                self._clock.note(told.now_ms, at_s)
            if told.forgotten:
                self._teller.forgotten(backlog.slot, told.forgotten)
            if told.odd:
                self._teller.odd(told.odd)
                backlog.pause_s = time.monotonic() + AGAIN_S
            backlog.delivered(batch, told, time.monotonic())
        if backlog.standing != before:
            self._wake.set()
            if backlog.standing in ("over", "not held"):
                self._holder.refused(backlog.slot, backlog.fence, "over" if backlog.standing == "over" else "not held")
