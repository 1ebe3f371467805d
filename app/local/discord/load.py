"""Tells a gateway so many events a second, of all of its guilds that are in no outage."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Self

from app.local.discord.talk import Talk

if TYPE_CHECKING:
    from types import TracebackType

    from app.local.discord.gateway import Gateway

TICK_S = 0.02


class Load:
    """Runs in the gateway's loop, from `start` to `stop` or as `async with`. `per_s` may be changed meanwhile."""

    def __init__(self, gateway: Gateway, per_s: float, *, seed: int = 1, direct: float = 0.02) -> None:
        """Prepare.

        Args:
            gateway: who tells.
            per_s: events in a second; what a busy loop could not tell in time is told later.
            seed: of what is said.
            direct: the part of it that belongs to no guild.
        """
        self.per_s, self.direct = per_s, direct
        self.said = 0
        self._gateway = gateway
        self._talk = Talk(seed, time.time)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start."""
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()

    def start(self) -> None:
        """Begin to tell."""
        self._task = asyncio.create_task(self._tell())

    async def stop(self) -> None:
        """End. Raises what telling raised."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _tell(self) -> None:
        owed, last_s = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now_s = time.monotonic()
            owed, last_s = owed + self.per_s * (now_s - last_s), now_s
            guilds = [guild for guild in self._gateway.guilds.ids if self._gateway.guilds.is_available(guild)]
            for _ in range(int(owed)):
                self._gateway.say(*self._talk.say(guilds, direct=self.direct))
                self.said += 1
            owed -= int(owed)
