"""The life of one socket, from HELLO to its end: three small tasks and one deadline, and the first cause that ends it.

One task reads, one beats, one says IDENTIFY or RESUME (after the gate, which may take minutes). The deadline is that of
HELLO, then of READY or RESUMED, then of the guilds. Whoever sees the end first says how it was; all tasks are over when
`run` returns, also when it is cancelled.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tasks.shards.gateway.beats import Beats
from tasks.shards.gateway.payloads import (
    Garbled,
    Op,
    beat_interval_s,
    guild_of,
    identify,
    meaning,
    ready,
    resume,
)
from tasks.shards.gateway.plan import Ended, Sends
from tasks.shards.gateway.session import Event, Session
from tasks.shards.gateway.wire import Gone

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AsyncExitStack

    from tasks.shards.gateway.ear import Ear
    from tasks.shards.gateway.payloads import Payload
    from tasks.shards.gateway.plan import How, Numbers, Plan
    from tasks.shards.gateway.session import Shard
    from tasks.shards.gateway.wire import Wire

logger = logging.getLogger(__name__)

AT_ONCE = 32
"""Payloads that are taken before others in the loop have their turn."""
EARLY_S = 0.001
"""The loop's clock may ring a bit too soon."""
State = Literal[
    "waiting", "connecting", "hello", "identifying", "resuming", "ready", "settled", "reconnecting", "paused", "over"
]


@dataclass(slots=True)
class Core:
    """What outlives a socket."""

    shard: Shard
    ear: Ear
    plan: Plan
    numbers: Numbers
    clock: Callable[[], float]
    chance: Callable[[], float]
    state: State = "waiting"
    latency_s: float | None = None
    unsettled: set[int] = field(default_factory=set[int])
    """Guilds of the session's READY that have not come."""


class Life:
    """See the module. Used once."""

    def __init__(self, core: Core, wire: Wire, turn: AsyncExitStack) -> None:
        """`turn`: closed when IDENTIFY was sent."""
        self._core, self._wire, self._turn = core, wire, turn
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self._sends = Sends(core.numbers)
        self._began_s = core.clock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._deadline: asyncio.TimerHandle | None = None
        self._greeted = self._hailed = self._ready = self._replayed = False
        self._interval_s = 0.0
        self._asked = asyncio.Event()
        """Somebody asked for a beat."""
        self._beats = Beats()

    async def run(self) -> Ended:
        """Live until the socket ends."""
        core = self._core
        core.state = "hello"
        self._until(core.numbers.hello_s, "no HELLO")
        self._spawn(self._read())
        try:
            return await self._ended
        finally:
            self._at_ease()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def mute(self) -> None:
        """Nothing is heard from now on; `run` is about to be cancelled."""
        if not self._ended.done():
            self._ended.cancel()

    async def send(self, op: int, data: Any) -> None:
        """See `Connection.send`."""
        while wait_s := self._sends.wait_s(self._core.clock()):
            await asyncio.wait({self._ended}, timeout=wait_s)
            if self._ended.done():
                break
        if self._ended.done():
            raise ConnectionError("the socket is gone")
        try:
            await self._wire.send(op, data, self._core.numbers.connect_s)
        except (Gone, TimeoutError) as error:
            raise ConnectionError("the socket is gone") from error

    def beat(self) -> None:
        """Send a beat now, if there is a place for it."""
        self._asked.set()

    # -- the end

    def _end(self, how: How, why: str, code: int = 0) -> None:
        if not self._ended.done():
            lived_s = self._core.clock() - self._began_s
            known = {"hailed": self._hailed, "replayed": self._replayed, "ready": self._ready}
            self._ended.set_result(Ended(how, why, code, opened=True, lived_s=lived_s, **known))

    def _until(self, after_s: float, missing: str) -> None:
        """End the socket when `missing` is missing after so long; replaces the deadline before."""
        self._later(after_s, lambda: self._end("silent", f"{missing} within {after_s:g} s"))

    def _later(self, after_s: float, what: Callable[[], None]) -> None:
        self._at_ease()
        self._deadline = self._loop.call_later(after_s, what)

    def _at_ease(self) -> None:
        """Nothing is missing."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.create_task(self._guarded(coroutine)))

    async def _guarded(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except Gone as gone:
            self._end("closed", meaning(gone.code), gone.code)
        except Garbled as garbled:
            self._end("garbled", f"Discord sent {garbled}")
        except TimeoutError:
            self._end("zombie", "the socket takes nothing any more")
        except Exception as error:  # a fault of our own, or of who listens: it must not stop the shard unseen
            logger.exception("shards: shard %d of %d", self._core.shard.shard, self._core.shard.total)
            self._end("garbled", f"a fault: {type(error).__name__}")

    # -- what comes

    async def _read(self) -> None:
        for count in itertools.count(1):
            payload = await self._wire.read()
            if self._ended.done():
                return
            self._took(payload)
            if count % AT_ONCE == 0:  # a long replay is there at once, and reading it would not wait for anybody
                await asyncio.sleep(0)
                if self._replayed and not self._ready:
                    await self._room()

    async def _room(self) -> None:
        """Read on when there is room; no answer of Discord's is missing meanwhile."""
        self._at_ease()
        await self._core.ear.room()
        if not self._ended.done():
            self._until_more()

    def _until_more(self) -> None:
        self._until(self._core.numbers.ready_s, "nothing more after RESUME")

    def _took(self, payload: Payload) -> None:
        match payload.op:
            case Op.DISPATCH:
                self._dispatched(payload)
            case Op.HEARTBEAT_ACK:
                sent_s = self._beats.answered()
                if sent_s is not None:
                    self._core.latency_s = self._core.clock() - sent_s
                    self._core.ear.answered(sent_s)
            case Op.HEARTBEAT:
                self._asked.set()
            case Op.HELLO:
                self._hello(payload.data)
            case Op.RECONNECT:
                self._end("asked", "Discord asked for another connection")
            case Op.INVALID_SESSION if payload.data is True:
                self._end("try again", "Discord could not resume the session now")
            case Op.INVALID_SESSION:
                whose = "session" if self._core.plan.session else "IDENTIFY"
                self._end("invalid", f"Discord does not take the {whose}")
            case _:  # an op code that is new
                return

    def _hello(self, data: Any) -> None:
        if self._greeted:
            raise Garbled("a second HELLO")
        self._greeted = True
        self._interval_s = beat_interval_s(data)
        self._at_ease()
        self._spawn(self._beat())
        self._spawn(self._hail())

    def _dispatched(self, payload: Payload) -> None:
        core = self._core
        if not self._hailed:
            raise Garbled("an event before IDENTIFY or RESUME")
        if payload.name == "READY":
            self._new_session(payload)
            return
        session = core.plan.session
        if session is None:
            raise Garbled("an event before READY")
        if payload.name == "RESUMED":
            core.plan.session = session._replace(sequence=payload.sequence)
            self._is_ready()
            return
        if not isinstance(payload.data, dict):  # nothing of the kind is documented, yet it comes (PRESENCES_REPLACE)
            core.plan.session = session._replace(sequence=payload.sequence)
            return
        event = Event(session.id, payload.sequence, payload.name, payload.data, payload.raw_bytes)
        core.ear.heard(event)
        core.plan.session = session._replace(sequence=payload.sequence)
        if not self._ready:  # the session goes on: what was missed comes before RESUMED
            self._replayed = True
            self._until_more()
        if core.unsettled:
            core.unsettled.discard(guild_of(payload))
            if not core.unsettled and core.state == "ready":
                self._settled()

    # -- the session

    def _new_session(self, payload: Payload) -> None:
        core = self._core
        if core.plan.session is not None:
            raise Garbled("a READY in a session")
        found = ready(payload.data)
        session = Session(found.session_id, payload.sequence, found.resume_url)
        core.plan.session, core.unsettled = session, set(found.guilds)
        core.ear.began(session, found.guilds)
        self._is_ready()

    def _is_ready(self) -> None:
        core = self._core
        self._ready, core.state = True, "ready"
        if core.unsettled:
            self._later(core.numbers.settled_s, self._settled)
        else:
            self._settled()

    def _settled(self) -> None:
        core = self._core
        self._at_ease()
        core.unsettled = set()
        if not self._ended.done():
            core.state = "settled"
            core.ear.settled()

    # -- what is sent

    async def _hail(self) -> None:
        core, shard, session = self._core, self._core.shard, self._core.plan.session
        if session is None:
            core.state = "identifying"
            if not await core.ear.may_identify():
                self._end("not ours", "the shard is another pod's")
                return
            op, data = Op.IDENTIFY, identify(shard.token, shard.intents, shard.shard, shard.total)
        else:
            core.state = "resuming"
            op, data = Op.RESUME, resume(shard.token, session)
        self._hailed = True
        self._sends.wait_s(core.clock(), beat=True)
        self._until(core.numbers.ready_s, f"no answer to {op.name}")
        await self._wire.send(op, data, core.numbers.connect_s)
        await self._turn.aclose()

    async def _beat(self) -> None:
        core, beats, interval_s = self._core, self._beats, self._interval_s
        due_s = core.clock() + interval_s * core.chance()
        while True:
            try:
                async with asyncio.timeout(min(due_s, beats.missed_s(interval_s)) - core.clock()):
                    await self._asked.wait()
            except TimeoutError:
                now_s = core.clock() + EARLY_S
                if now_s >= beats.missed_s(interval_s):
                    self._end("zombie", f"no answer to a beat for {interval_s:g} s")
                    return
                if now_s < due_s:
                    continue  # that one was answered meanwhile
                due_s = core.clock() + interval_s
            self._asked.clear()
            now_s = core.clock()
            if self._sends.wait_s(now_s, beat=True):
                continue  # so many went out within the minute that this one is not missed
            beats.sent(now_s)
            session = core.plan.session
            sequence = min(session.sequence, core.ear.handed_on()) if session else None
            await self._wire.send(Op.HEARTBEAT, sequence, interval_s)
