"""One shard at Discord over many sockets: connects, identifies or resumes, beats, and comes back. See the package."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from tasks.shards.gateway.life import Core, Life
from tasks.shards.gateway.payloads import HAND_OVER, address
from tasks.shards.gateway.plan import Ended, Numbers, Over, Plan
from tasks.shards.gateway.wire import Unreachable, open_wire

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from tasks.shards.gateway.ear import Ear
    from tasks.shards.gateway.life import State
    from tasks.shards.gateway.payloads import Compression
    from tasks.shards.gateway.session import Session, Shard


logger = logging.getLogger(__name__)


class Connection:
    """One shard. `start` it in a running loop, and `close` it in the same one."""

    def __init__(
        self,
        shard: Shard,
        ear: Ear,
        *,
        session: Session | None = None,
        numbers: Numbers | None = None,
        compression: Compression = "zlib",
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Nothing happens before `start`.

        Args:
            shard: which, and where.
            ear: told what happens.
            session: to be resumed; None: identify.
            numbers: deadlines and limits.
            compression: one of `payloads.offered()`.
            tls: for wss addresses, the same for all connections (a context takes most of a MiB); None: one each.
            clock: monotonic seconds, for what is counted; sleeping follows the loop's.
            chance: from 0 to 1.
        """
        numbers = numbers or Numbers()
        self._core = Core(shard, ear, Plan(shard.url, session, numbers, chance), numbers, clock, chance)
        self._compression: Compression = compression
        self._tls = tls
        self._life: Life | None = None
        self._code: int | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Connection {self._core.shard!r} {self.state}>"

    @property
    def state(self) -> State:
        """Where it is; see the package."""
        return self._core.state

    @property
    def session(self) -> Session | None:
        """What another connection would resume from: its sequence is that of the last event that was heard."""
        return self._core.plan.session

    @property
    def latency_s(self) -> float | None:
        """Between the last beat that was answered and its answer; None before the first."""
        return self._core.latency_s

    def follow(self, main_url: str) -> None:
        """Discord's main address is this one now; for the next socket."""
        self._core.plan.main_url = main_url

    def start(self) -> None:
        """Connect, and stay connected."""
        self._task = asyncio.create_task(self._run())

    async def close(self, code: int) -> None:
        """Close with this code and be over; the ear hears nothing from now on. Done within `close_s`.

        4000 keeps the session for whoever resumes it, 1000 ends it. A socket that takes nothing any more is cut
        without a code, which keeps the session. The first of several codes is the one that is sent.
        """
        if self._code is None:
            self._code = code
            if self._life is not None:
                self._life.mute()
            if self._task is not None:
                self._task.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})
        self._core.state = "over"

    async def send(self, op: int, data: Any) -> None:
        """Send a payload of one's own, such as a presence, when there is a place for it.

        Raises `ConnectionError` when the connection is not ready or is lost before it was sent, `ValueError` when the
        payload is longer than Discord takes.
        """
        life = self._life
        if life is None or self.state not in ("ready", "settled"):
            raise ConnectionError(f"shard {self._core.shard.shard} is not ready")
        await life.send(op, data)

    def beat(self) -> None:
        """Send a beat now, where there is somebody to answer it; the ear is told of its answer."""
        if self._life is not None and self.state in ("ready", "settled"):
            self._life.beat()

    # -- sockets, one after the other

    async def _run(self) -> None:
        core = self._core
        while True:
            try:
                ended = await self._once()
            except Exception as error:  # a fault of our own, or of who listens: it must not end the shard unseen
                logger.exception("shards: shard %d of %d", core.shard.shard, core.shard.total)
                ended = Ended("garbled", f"a fault: {type(error).__name__}")
            then = core.plan.after(ended, core.clock())
            if isinstance(then, Over):
                core.state = "over"
                core.ear.over(then.why, fatal=then.fatal, code=then.code)
                return
            if then.dropped:
                core.unsettled.clear()
                core.ear.dropped(then.dropped)
            core.state = "paused" if then.paused else "reconnecting"
            core.ear.lost(ended.why, then.after_s)
            await asyncio.sleep(then.after_s)

    async def _once(self) -> Ended:
        """One socket, from before its opening to its end."""
        core, numbers = self._core, self._core.numbers
        async with AsyncExitStack() as turn:
            if core.plan.session is None:
                core.state = "waiting"
                await turn.enter_async_context(core.ear.turn())
            else:
                await core.ear.may_resume()
            core.state = "connecting"
            url = address(core.plan.url, self._compression)
            try:
                wire = await open_wire(
                    url, self._compression, self._tls, connect_s=numbers.connect_s, close_s=numbers.close_s
                )
            except Unreachable as error:
                return Ended("unreachable", f"cannot connect: {error}")
            self._life = Life(core, wire, turn)
            try:
                ended = await self._life.run()
            finally:
                self._life = None
                await wire.close(HAND_OVER if self._code is None else self._code)
        return ended
