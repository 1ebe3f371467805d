"""The same with real processes, each with its own clock, its own connections and its own death."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, cast

import pytest

from app.local.processes import ROOT
from app.local.servers import Server
from app.shards.commands import Reached
from tasks.shards.keys import Keys
from tasks.shards.operations import Numbers, Operations
from tests.agreement.discord import too_close
from tests.agreement.pod import CONCURRENCY, IDENTIFIES, RECOMMENDED
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.guard import Guard, Process
    from tasks.shards.answers import Looked

TTL_S, SCAN_S, RESUME_S = 9.0, 2.0, 1.0
SCANS = 2
KEEPS_ITS_DATA = {"appendonly": "yes", "appendfsync": "always"}


class Bot:
    """Processes that hold the shards of one bot; Redis may fail, what Discord remembers does not."""

    def __init__(self, guard: Guard) -> None:
        """Two servers, no pod."""
        self.guard = guard
        self.server = Server(guard, options=KEEPS_ITS_DATA).start()
        self.discord = Server(guard).start()
        self.folder = guard.folder("shards")
        self.redis, self.memory = self.server.client(), self.discord.client()
        self.ops = Operations(Keys("bot"), Numbers())
        self.pods: dict[str, Process] = {}

    def start(self, *names: str) -> None:
        for name in names:
            command = [sys.executable, "-m", "tests.agreement.pod", self.server.url, self.discord.url, name]
            self.pods[name] = self.guard.start(name, command, log=self.folder / f"{name}.log", cwd=ROOT)

    def look(self) -> Looked:
        return Reached(self.redis, self.ops).look()

    def serves(self, total: int) -> bool:
        looked = self.look()
        active = looked.head.active
        if active is None or active.total != total or looked.head.pending:
            return False
        alive = {member.name for member in looked.view.members}
        binds = [looked.view.binds.get((active.version, shard)) for shard in range(total)]
        return all(bind and bind.state == "ready" and bind.member in alive for bind in binds)

    def holders(self) -> dict[int, str]:
        return {shard: bind.member for (_, shard), bind in self.look().view.binds.items() if bind.held}

    def members(self) -> set[str]:
        """Names of the living, as they were started."""
        return {member.name.partition("#")[0] for member in self.look().view.members}

    def wait_serves(self, total: int, timeout_s: float = 60.0) -> float:
        began_s = time.monotonic()
        wait_until(lambda: self.serves(total), timeout_s, what=lambda: f"{self.look()}\n{self.logs()}", every_s=0.05)
        return time.monotonic() - began_s

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{pod.read_log()[-800:]}" for name, pod in self.pods.items())

    def identifies(self) -> list[tuple[float, int]]:
        """(time, bucket) of each."""
        raw = cast("list[bytes]", self.memory.lrange(IDENTIFIES, 0, -1))
        words = [line.split() for line in raw]
        return sorted((float(word[0]), int(word[2]) % CONCURRENCY) for word in words)

    def end(self) -> None:
        for pod in self.pods.values():
            pod.resume()
            self.guard.end(pod, 0)
        self.redis.close()
        self.memory.close()
        self.server.kill()
        self.discord.kill()


@pytest.fixture
def bot(guard: Guard) -> Iterator[Bot]:
    made = Bot(guard)
    yield made
    made.end()


def test_a_killed_process_is_replaced_by_resume(bot: Bot) -> None:
    bot.start("a", "b", "c")
    bot.wait_serves(16)
    identifies = len(bot.identifies())
    bot.pods["b"].kill()
    wait_until(lambda: "b" not in bot.members(), TTL_S + 3, what="the death to be noticed")
    held_again_s = bot.wait_serves(16)
    assert held_again_s <= SCANS * SCAN_S + RESUME_S
    assert len(bot.identifies()) == identifies


def test_a_frozen_process_loses_its_shards_and_holds_none_when_it_wakes(bot: Bot) -> None:
    bot.start("a", "b", "c")
    bot.wait_serves(16)
    bot.pods["a"].pause()
    wait_until(lambda: not any(m.startswith("a#") for m in bot.holders().values()), TTL_S + 5, what="a to be given up")
    bot.wait_serves(16)
    before = bot.holders()
    bot.pods["a"].resume()
    wait_until(lambda: "a" in bot.members(), 10.0, what="a to be back")
    assert bot.holders() == before


def test_ten_processes_and_two_totals_keep_the_gate(bot: Bot) -> None:
    bot.start(*(f"pod-{number}" for number in range(10)))
    bot.wait_serves(16, 90.0)
    bot.memory.set(RECOMMENDED, 32)
    bot.wait_serves(32, 90.0)
    assert len(bot.identifies()) == 16 + 32
    assert too_close(bot.identifies()) == []


def test_a_rolling_restart_hands_everything_over(bot: Bot) -> None:
    bot.start("a", "b", "c")
    bot.wait_serves(16)
    identifies = len(bot.identifies())
    for name in "abc":
        old = bot.pods[name]
        old.terminate()
        wait_until(lambda old=old: not old.running, 30.0, what="the drained pod to end")
        assert "left True" in old.read_log()
        bot.start(name)
        bot.wait_serves(16)
        wait_until(lambda: len(bot.look().view.members) == 3, 10.0, what="three members")
    assert len(bot.identifies()) == identifies


def test_redis_restarts_and_nobody_moves(bot: Bot) -> None:
    bot.start("a", "b", "c")
    bot.wait_serves(16)
    wait_until(lambda: len(set(bot.holders().values())) == 3, 60.0, what="level loads")
    before, identifies = bot.holders(), len(bot.identifies())
    bot.server.kill()
    time.sleep(3.0)  # how long it is away is what the test is about
    bot.server.start()
    bot.redis = bot.server.client()
    wait_until(lambda: bot.look().head.guard_ms > 0, 10.0, what="the guard")
    bot.wait_serves(16)
    moved = {shard for shard, member in bot.holders().items() if before[shard] != member}
    assert len(moved) <= 3, "levelling alone"
    assert len(bot.identifies()) == identifies


def test_two_round_trips_a_second_each(bot: Bot) -> None:
    bot.start("a", "b", "c")
    bot.wait_serves(16)
    bot.pods["a"].read_log()

    def calls() -> int:
        stats = cast("dict[str, dict[str, int]]", bot.redis.info("commandstats"))  # pyright: ignore[reportUnknownMemberType]
        return sum(stats.get(name, {}).get("calls", 0) for name in ("cmdstat_evalsha", "cmdstat_eval"))

    rev = bot.look().head.rev
    before, began_s = calls(), time.monotonic()
    time.sleep(15.0)  # a rate is measured over a time
    seconds = time.monotonic() - began_s
    rate = (calls() - before) / seconds / 3
    quiet = bot.look().head.rev - rev
    votes = 2.0 / 1.0  # the tests' pods ask Discord each second, with two operations
    assert rate <= 2.1 + votes + quiet
