"""Pods that hold shards for tests: driver, holder and outbox each, on a real server and a Discord of the test's."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from app.local.discord.bot import Bot as KnownBot
from app.local.discord.gateway import Gateway
from app.local.discord.guilds import shard_of
from app.local.discord.terms import Terms
from app.shards.commands import Reached
from tasks.shards import vocabulary as v
from tasks.shards.delivery.delivery import Outbox
from tasks.shards.driver import Driver
from tasks.shards.gateway.holder import Address, Bot, Holder
from tasks.shards.keys import Keys
from tasks.shards.operations import Numbers, Operations
from tests.shards.delivering import QUEUE, Plain
from tests.shards.listening import INTENTS, QUICK, TOKEN, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tasks.shards.answers import Looked
    from tests.support.servers import Client

BUCKETS = 16
NUMBERS = Numbers(ttl_ms=3000, scan_ms=100, spacing_ms=50, settle_ms=20_000)
LONG_S = 20.0


class Messages(Plain):
    """Wants what a test says, and nothing that a session makes for itself."""

    def wants(self, name: str) -> bool:
        return name == "TYPING_START"

    def write(self, event: Any, identity: str) -> Any:
        return super().write(event._replace(data={"content": event.data["user_id"]}), identity)


class Pod:
    """One of them."""

    def __init__(self, world: World, name: str, intents: int) -> None:
        """Starts."""
        operations = Operations(Keys("1"), NUMBERS, f"{name}#1", f"intents {intents}")
        made = partial(Outbox, world.client.url, operations, Messages(), margin_s=0.2, most=world.most)
        self.holder = Holder(Bot(TOKEN, intents), Address(world.gateway.url), made, numbers=QUICK)
        self.frozen_s = 0.0
        self.driver = Driver(world.client.url, operations, self.holder, votes=self._stand_still)
        self.driver.start()

    def holds(self) -> int:
        """How many shards."""
        return len(self.driver.state.owns)

    def freeze(self, seconds: float) -> None:
        """Its loop stands still for so long, with all that is in it."""
        self.frozen_s = seconds

    async def _stand_still(self, _tell: object) -> None:
        """In place of votes: in the driver's loop."""
        while True:
            await asyncio.sleep(0.02)
            if self.frozen_s:
                time.sleep(self.frozen_s)  # noqa: ASYNC251 - that is what it is for
                self.frozen_s = 0.0

    async def drain(self) -> bool:
        """Hand everything over and leave."""
        done = await asyncio.to_thread(self.driver.drain, LONG_S)
        await self.stop()
        return done

    async def stop(self) -> None:
        """End at once."""
        await asyncio.to_thread(self.driver.stop)


class World:
    """Pods, a Redis and a Discord."""

    def __init__(self, client: Client, gateway: Gateway, most: tuple[int, int] = (10_000, 1 << 26)) -> None:
        """No pod yet. `most`: events and bytes in an outbox."""
        self.client, self.gateway, self.most = client, gateway, most
        self.pods: dict[str, Pod] = {}
        self.person = Reached(client, Operations(Keys("1"), NUMBERS))
        self.said: list[str] = []

    def start(self, name: str, intents: int = INTENTS) -> Pod:
        """One more pod."""
        pod = self.pods[name] = Pod(self, name, intents)
        return pod

    async def tell(self, shards: int, *, rounds: int = 1) -> None:
        """What Discord recommends, to all pods, so often."""
        bot = self.gateway.bot
        for pod in list(self.pods.values()) * rounds:
            pod.driver.tell(v.Told(shards, BUCKETS, bot.total, bot.remaining, 86_400_000))

    def look(self) -> Looked:
        return self.person.look()

    async def serves(self, total: int) -> None:
        """Wait until so many shards serve, all of them settled."""

        def whole() -> bool:
            found = self.look()
            active = found.head.active
            ready = {s for (n, s), bind in found.view.binds.items() if active and n == active.version and bind.held}
            states = [bind.state for bind in found.view.binds.values()]
            return bool(
                active and active.total == total and len(ready) == total == len(states) == states.count("ready")
            )

        await until(whole, self.describe, LONG_S)

    def describe(self) -> str:
        found = self.look()
        return f"{found.head} {found.view.binds} {found.note} {dict(self.gateway.book.counts)}"

    def say(self, count: int = 1) -> None:
        """Something happens in each guild."""
        for _ in range(count):
            for guild in self.gateway.guilds.ids:
                self.said.append(f"event {len(self.said)}")
                self.gateway.say(guild, "TYPING_START", {"channel_id": "1", "user_id": self.said[-1], "timestamp": 1})

    def came(self) -> list[str]:
        """What came into the queue."""
        raw = cast("list[bytes]", self.client.lrange(QUEUE, 0, -1))
        return [json.loads(each)[0] for each in reversed(raw)]

    async def all_came(self) -> None:
        """Wait until everything that was said is in the queue: once, and of each guild in its order."""
        await until(lambda: len(self.came()) >= len(self.said), lambda: f"{self.missing()} {self.describe()}", LONG_S)
        came, guilds = self.came(), len(self.gateway.guilds)
        assert sorted(came) == sorted(self.said)
        for first in range(guilds):
            mine = set(self.said[first::guilds])
            assert [each for each in came if each in mine] == self.said[first::guilds]

    def missing(self) -> list[str]:
        came = set(self.came())
        return [each for each in self.said if each not in came]

    def codes(self) -> list[int]:
        """With which codes clients closed."""
        return [entry.code for entry in self.gateway.book.of("closed")]

    def shards(self, total: int) -> set[int]:
        """Those that have a guild."""
        return {shard_of(guild, total) for guild in self.gateway.guilds.ids}


@asynccontextmanager
async def world(
    client: Client, *pods: str, shards: int = 4, most: tuple[int, int] | None = None
) -> AsyncGenerator[World]:
    """Pods that serve so many shards."""
    client.flushall()
    terms = Terms(identify_every_s=0.04, heartbeat_s=5.0)
    async with Gateway(KnownBot(TOKEN, shards=shards, concurrency=BUCKETS), guilds=8, terms=terms) as gateway:
        made = World(client, gateway, most or (10_000, 1 << 26))
        try:
            for name in pods:
                made.start(name)
            await until(lambda: len(made.look().view.members) == len(pods), made.describe)
            client.hdel(Keys("1").state(), "guard")  # of a cluster that is new; it would be over in a while
            await made.tell(shards)
            await made.serves(shards)
            yield made
        finally:
            for pod in made.pods.values():
                await pod.stop()


def play(client: Client, scene: Callable[[World], Any], *pods: str, **options: Any) -> None:
    """A scene with pods."""

    async def run() -> None:
        async with world(client, *pods, **options) as made:
            await scene(made)

    asyncio.run(run())
