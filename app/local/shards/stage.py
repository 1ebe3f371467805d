"""Puts a bot's cluster on its feet on this machine: server, Discord's stand-in, pods with shards, one that hears.

The pods are the application's own workers with the settings that a bot needs; `tasks.shards` knows no stand-in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self

import redis

from app.local.discord import checker, remote
from app.local.discord.intents import ORDINARY
from app.local.guard import Guard
from app.local.processes import Placement, start_pod, wait_ready
from app.local.servers import Server, free_port
from app.local.shards import consumer
from app.local.waiting import wait_until
from app.shards.commands import Reached
from tasks.shards.keys import Keys
from tasks.shards.operations import Numbers, Operations, read_outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.local.discord.book import Entry
    from app.local.guard import Process
    from tasks.shards.answers import Looked, Outcome

BOT = "4711"
READY_S = 120.0
QUIET_S = 20.0


class Served(NamedTuple):
    """Who serves the active target."""

    total: int
    version: int
    ready: dict[str, int]
    """Pod -> shards of it that are ready there."""

    @property
    def whole(self) -> bool:
        """Each shard of it is ready somewhere."""
        return self.total > 0 and sum(self.ready.values()) == self.total


class BotStage:
    """One bot's cluster; a context manager."""

    def __init__(
        self,
        *,
        shards: int,
        guilds: int,
        concurrency: int = 16,
        ttl_s: float = 9.0,
        settings: Mapping[str, str] | None = None,
        server: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is started before `start`.

        Args:
            shards: how many Discord recommends.
            guilds: how many the bot is in.
            concurrency: identifies that Discord takes at once.
            ttl_s: after which a silent pod's shards are free.
            settings: further environment variables of the pods.
            server: options of the Redis server.
        """
        self.guard = Guard()
        self.folder = self.guard.folder("bot")
        self.records = self.folder / consumer.FILE
        self.server = Server(self.guard, options=server)
        self.pods: dict[str, Process] = {}
        self.probes: dict[str, int] = {}
        """Port at which a pod tells of itself."""
        self.concurrency = concurrency
        self._asked = shards, guilds
        self._numbers = Numbers(ttl_ms=round(ttl_s * 1000))
        self._settings = {
            "SHARD_TTL": f"{ttl_s:g}",
            "THROTTLE_TTL": "6",
            "PULSE_EVERY": "0",
            "TASK_QUEUE": "task_queue",
            "CRITICAL_QUEUE": "critical",
            "JOBS_FOLDER": str(self.folder),
            **(settings or {}),
        }

    def __enter__(self) -> Self:
        """Return the stage itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End every process and remove the folder."""
        self.guard.close()

    def start_redis(self) -> None:
        """Start the server. Raises ServerError."""
        self.server.start()

    @property
    def redis_url(self) -> str:
        """Where everybody finds Redis."""
        return self.server.url

    def start_surroundings(self) -> None:
        """Start the server and the stand-in. Raises as `start`."""
        self.start_redis()
        self.client: redis.Redis = redis.Redis.from_url(self.redis_url)
        shards, guilds = self._asked
        self.discord = remote.start(self.guard, self.folder, shards=shards, guilds=guilds, concurrency=self.concurrency)

    def start(self, pods: int) -> None:
        """Start everything and wait until the pods consume; shards come later.

        Raises:
            ServerError, StartError, WaitError: with one line that says what did not come.
        """
        self.start_surroundings()
        self._reached = Reached(self.client, Operations(Keys(BOT), self._numbers))
        bot = {
            "DISCORD_TOKEN": self.discord.token,
            "DISCORD_BOT_ID": BOT,
            "DISCORD_INTENTS": str(ORDINARY),
            "DISCORD_API_URL": self.discord.api_url,
            "SHARD_CONNECTIONS": "discord",
            "SHARD_TASK": consumer.TASK,
            "SHARD_EVENTS": f"*={consumer.QUEUE}",
        }
        self._hears = Placement(self.redis_url, self.folder, self._settings)
        self._holds = Placement(self.redis_url, self.folder, {**self._settings, **bot})
        self.consumer = start_pod(
            self.guard,
            self._hears,
            "consumer",
            pool="solo",
            arguments=["--queues", consumer.QUEUE],
            include=[consumer.__name__],
            events=False,
        )
        started = [self.add_pod(f"pod-{number}") for number in range(1, pods + 1)]
        wait_ready([self.consumer, *started])

    def add_pod(self, name: str) -> Process:
        """Start one more pod that holds shards, and return at once."""
        self.probes[name] = free_port()
        pod = start_pod(
            self.guard,
            replace(self._holds, settings={**self._holds.settings, "PROBE_PORT": str(self.probes[name])}),
            name,
            pool="solo",
            arguments=["--queues", "task_queue"],
            include=[consumer.__name__],
            events=False,
        )
        self.pods[name] = pod
        return pod

    # -- what it looks like

    def look(self) -> Looked:
        """The whole cluster, as `python -m app shards` sees it."""
        return self._reached.look()

    def served(self, looked: Looked | None = None) -> Served:
        """The active target, and who serves it; `looked`: as it was then."""
        looked = looked or self.look()
        active = looked.head.active
        if active is None:
            return Served(0, 0, {})
        ready: dict[str, int] = {}
        for (version, _), bind in looked.view.binds.items():
            if version == active.version and bind.state == "ready":
                pod = bind.member.partition("#")[0]
                ready[pod] = ready.get(pod, 0) + 1
        return Served(active.total, active.version, ready)

    def held_by(self, pod: str) -> set[int]:
        """Shards of the active target that a pod holds."""
        looked = self.look()
        active = looked.head.active
        return {
            shard
            for (version, shard), bind in looked.view.binds.items()
            if active and version == active.version and bind.member.partition("#")[0] == pod
        }

    def settled(self, total: int) -> bool:
        """Whether so many shards are served, and no connection of another target is left."""
        looked = self.look()
        served = self.served(looked)
        return served.total == total and served.whole and set(looked.view.totals) == {served.version}

    def wait_settled(self, total: int, timeout_s: float = READY_S) -> None:
        """Wait for it. WaitError: with the last words of each pod."""
        wait_until(lambda: self.settled(total), timeout_s, what=self.last_words)

    def last_words(self) -> str:
        """The end of each pod's log."""
        return "\n".join(f"--- {name}\n{pod.read_log()[-1500:]}" for name, pod in self.pods.items())

    def wants(self, total: int) -> Outcome:
        """Set the target, as a person does."""
        return read_outcome(self._reached.ask(self._reached.operations.target(total)))

    def times_of(self, kind: str, shards: set[int], since_s: float) -> dict[int, float]:
        """Shard -> when the stand-in first noted this of it since then, once it has of each of them; else nothing."""
        found = {e.shard: e.at_s for e in reversed(self.entries(since_s)) if e.kind == kind and e.shard in shards}
        return found if set(found) == shards else {}

    def closed_s(self, total: int) -> float:
        """When the last connection of a total ended, on the stand-in's clock; 0 where it had none."""
        return checker.ended_s(checker.spells(self.discord.entries(), self.discord.now_s()), total)

    # -- the verdict

    def heard(self) -> list[checker.Heard]:
        """What the consumer has written down, in its order."""
        return consumer.read(self.records)

    def heard_count(self) -> int:
        """How many events it has written down."""
        return consumer.count(self.records)

    def hush(self) -> None:
        """End the load and wait until consumers have heard all of it, or nothing more for a while."""
        self.discord.load(0)
        told = sum(event.heard for event in self.discord.told())
        seen, since_s = -1, self.discord.now_s()

        def quiet() -> bool:
            nonlocal seen, since_s
            count, now_s = self.heard_count(), self.discord.now_s()
            if count != seen:
                seen, since_s = count, now_s
            return count >= told or now_s - since_s > QUIET_S

        wait_until(quiet, 10 * QUIET_S, what="consumers to hear the rest", every_s=0.2)

    def verdict(self) -> checker.Verdict:
        """What became of each event."""
        return checker.weigh(self.discord.told(), self.heard())

    def entries(self, since_s: float = 0.0) -> list[Entry]:
        """What clients did since then, on the stand-in's clock."""
        return [entry for entry in self.discord.entries() if entry.at_s >= since_s]
