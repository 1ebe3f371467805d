"""A process that holds shards with simulated connections, for tests: `python -m tests.agreement.pod URL NAME`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, cast

import redis.asyncio

from tasks.shards import vocabulary as v
from tasks.shards.driver import Driver
from tasks.shards.keys import Keys
from tasks.shards.operations import Numbers, Operations
from tasks.shards.simulated import Simulated

if TYPE_CHECKING:
    from tasks.shards.vocabulary import Slot

IDENTIFIES = "sim:identifies"
SESSION = "sim:session:{}:{}"
RECOMMENDED = "sim:recommended"
CONCURRENCY = 16
ASK_S = 1.0


class SharedSessions:
    """Discord's memory, in a Redis of its own that never fails."""

    def __init__(self, url: str) -> None:
        """At this address."""
        self.client = redis.asyncio.Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType]

    async def resumes(self, slot: Slot) -> bool:
        """Whether the shard has identified before."""
        return bool(await self.client.exists(SESSION.format(*slot)))

    async def identified(self, slot: Slot) -> None:
        """Note when."""
        await self.client.set(SESSION.format(*slot), 1)
        at = f"{time.time():.3f} {slot[0]} {slot[1]} {os.getpid()}"
        await self.client.rpush(IDENTIFIES, at)

    async def close(self) -> None:
        """Nobody asks any more."""
        await self.client.aclose()


def main(url: str, discord: str, name: str) -> None:
    """Hold shards until SIGTERM, then hand them over."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    member = f"{name}#{os.urandom(4).hex()}"
    driver = Driver(url, Operations(Keys("bot"), Numbers(), member), Simulated(SharedSessions(discord)))
    over = threading.Event()

    def end(_number: int, _frame: object) -> None:
        over.set()

    signal.signal(signal.SIGTERM, end)
    driver.start()
    print("started", flush=True)  # noqa: T201 - for who started it
    with redis.Redis.from_url(discord) as eye:
        while not over.wait(ASK_S):
            total = int(cast("bytes | None", eye.get(RECOMMENDED)) or 16)
            driver.tell(v.Told(total, CONCURRENCY, 1000, 1000, 86_400_000))
    sys.stdout.write(f"left {driver.drain(20.0)}\n")
    driver.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
