"""A bot as most are: each process has its share of the shards, and knows of no other process.

    python -m benchmarks.plain_bot RECORDS GATEWAY TOKEN FIRST LAST TOTAL CONCURRENCY [STAGGER_S]

Its shards connect, identify and hear, and write each event down where consumers of the cluster do. What it knows of its
sessions dies with it. Connections are Headroom's own, so that only what is around them is compared.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from app.local.discord.book import mark
from app.local.discord.intents import ORDINARY
from app.local.shards.consumer import Record, write
from tasks.shards.gateway.connection import Connection
from tasks.shards.gateway.session import Shard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    from app.local.guard import Process
    from app.local.shards.stage import BotStage
    from tasks.shards.gateway.plan import Dropped
    from tasks.shards.gateway.session import Event, Session

SPACING_S = 5.3
"""Between two identifies of a bucket."""


class Bot:
    """One process of it."""

    def __init__(self, records: Path, concurrency: int) -> None:
        """`records`: where events are written down; `concurrency`: buckets of identifies."""
        self.records, self.concurrency = records, concurrency
        self._free_s: dict[int, float] = {}

    async def gate(self, shard: int, stagger_s: float) -> None:
        """Wait for the shard's bucket, as far as this process knows."""
        bucket = shard % self.concurrency
        at_s = max(
            self._free_s.get(bucket, time.monotonic() + stagger_s * (shard // self.concurrency)), time.monotonic()
        )
        self._free_s[bucket] = at_s + SPACING_S
        await asyncio.sleep(at_s - time.monotonic())


class Ears:
    """Of one shard."""

    def __init__(self, bot: Bot, shard: int, stagger_s: float) -> None:
        """`stagger_s`: between rounds of buckets at the start of all processes at once."""
        self._bot, self._shard, self._stagger_s = bot, shard, stagger_s
        self._guilds: set[int] = set()
        self._sequence = 0

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Waits here, before the socket is opened."""
        await self._bot.gate(self._shard, self._stagger_s)
        self._stagger_s = 0.0
        yield

    async def may_identify(self) -> bool:
        """It waited in `turn`."""
        return True

    async def may_resume(self) -> None:
        """Nobody else has the session."""

    def began(self, session: Session, guilds: Collection[int]) -> None:
        """The guilds of READY come by themselves, and are no news."""
        del session
        self._guilds = set(guilds)

    def heard(self, event: Event) -> None:
        """Write it down."""
        self._sequence = event.sequence
        if event.name == "GUILD_CREATE" and int(event.data["id"]) in self._guilds:
            self._guilds.discard(int(event.data["id"]))
            return
        task = f"{event.session_id} {event.sequence}"
        write(Record(mark(event.name, event.data), event.name, time.monotonic(), task, again=False), self._bot.records)

    async def room(self) -> None:
        """There is."""

    def handed_on(self) -> int:
        """As far as it was heard."""
        return self._sequence

    def settled(self) -> None:
        """Nothing waits for it."""

    def answered(self, sent_s: float) -> None:
        """It lives."""

    def dropped(self, why: Dropped) -> None:
        """A new one comes."""

    def lost(self, why: str, after_s: float) -> None:
        """It comes back."""

    def over(self, why: str, *, fatal: bool, code: int) -> None:
        """For good."""
        sys.exit(f"shard {self._shard}: {why} ({code}{', fatal' if fatal else ''})")


def start(stage: BotStage, number: int, first: int, last: int, *, total: int, stagger_s: float = 0.0) -> Process:
    """Start a process with the shards from `first` to `last`, and return at once."""
    discord = stage.discord
    command = [sys.executable, "-m", "benchmarks.plain_bot", str(stage.records), discord.url, discord.token]
    command += [str(value) for value in (first, last, total, stage.concurrency, stagger_s)]
    return stage.guard.start(f"plain-{number}", command, log=stage.folder / f"plain-{number}.log")


async def main(records: str, gateway: str, token: str, *numbers: str) -> None:
    """Hold the shards until the process ends."""
    first, last, total, concurrency = (int(number) for number in numbers[:4])
    stagger_s = float(numbers[4]) if numbers[4:] else 0.0
    bot = Bot(Path(records), concurrency)
    connections = [
        Connection(Shard(gateway, token, ORDINARY, number, total), Ears(bot, number, stagger_s))
        for number in range(first, last + 1)
    ]
    for connection in connections:
        connection.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
