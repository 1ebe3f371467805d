"""A client by hand, on raw `websockets`: it sends what a test says, and believes nothing."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import TYPE_CHECKING, Any, Self

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from app.local.discord.bot import Bot
from app.local.discord.gateway import Gateway
from app.local.discord.terms import Terms
from app.local.waiting import WaitError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

TOKEN = "a.secret-token"  # noqa: S105 - of no bot
SOON_S, STEP_S = 5.0, 0.005
INTENTS = 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12


class Plain:
    """One connection; `async with` closes it as a test's end may: with 4000."""

    def __init__(self, url: str, query: str = "v=10&encoding=json") -> None:
        """`url`: without a query."""
        self._connecting = connect(f"{url}/?{query}", compression=None, ping_interval=None, close_timeout=1.0)
        self._inflate = zlib.decompressobj() if "zlib-stream" in query else None
        self.sequence: int | None = None

    async def __aenter__(self) -> Self:
        """Connect."""
        self.socket = await self._connecting
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.socket.close(4000)

    async def next(self) -> dict[str, Any]:
        """The next payload."""
        message = await asyncio.wait_for(self.socket.recv(), SOON_S)
        if self._inflate is not None:
            assert isinstance(message, bytes)
            assert message.endswith(b"\x00\x00\xff\xff")
            message = self._inflate.decompress(message)
        payload = json.loads(message)
        self.sequence = payload["s"] or self.sequence
        return payload

    async def until(self, name: str) -> dict[str, Any]:
        """The data of the next event of this name; what comes before is dropped."""
        while (payload := await self.next())["t"] != name:
            pass
        return payload["d"]

    async def op(self, op: int) -> Any:
        """The data of the next payload, which must be of this kind."""
        payload = await self.next()
        assert payload["op"] == op, payload
        return payload["d"]

    async def send(self, op: int, data: Any = None) -> None:
        """Send a payload."""
        await self.socket.send(json.dumps({"op": op, "d": data}))

    async def code(self) -> int:
        """With what it is closed; 1006: without a code. Payloads that come before are dropped."""
        try:
            while True:
                await asyncio.wait_for(self.socket.recv(), SOON_S)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 1006

    async def identify(self, shard: int = 0, total: int = 1, **more: Any) -> None:
        """HELLO is waited for; READY is not."""
        await self.op(10)
        await self.send(2, {"token": TOKEN, "intents": INTENTS, "properties": {}, "shard": [shard, total], **more})

    async def ready(self, shard: int = 0, total: int = 1, **more: Any) -> dict[str, Any]:
        """As `identify`, up to READY's data."""
        await self.identify(shard, total, **more)
        return await self.until("READY")

    async def resume(self, ready: dict[str, Any], sequence: int | None, token: str = TOKEN) -> None:
        """HELLO is waited for; what comes is not."""
        await self.op(10)
        await self.send(6, {"token": token, "session_id": ready["session_id"], "seq": sequence})


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition in this loop."""
    for _ in range(round(SOON_S / STEP_S)):
        if condition():
            return
        await asyncio.sleep(STEP_S)
    raise WaitError(f"waited {SOON_S:g} s in vain for: {what}")


def gateway(*, guilds: int = 4, concurrency: int = 16, total: int = 1000, **terms: Any) -> Gateway:
    """A gateway of one bot."""
    return Gateway(Bot(TOKEN, concurrency=concurrency, total=total), guilds=guilds, terms=Terms(**terms))
