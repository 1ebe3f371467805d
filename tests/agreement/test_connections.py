"""Pods with real connections, on a real server and against a strict Discord: scenes that take their time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Literal

import pytest

from app.local.discord.script import Fault
from tasks.shards.keys import Keys
from tests.shards.holding import NUMBERS, World, play
from tests.shards.listening import until

if TYPE_CHECKING:
    from tests.support.servers import Client


def test_pods_share_the_shards_and_each_event_comes_once(valkey: Client) -> None:
    async def scene(world: World) -> None:
        assert [pod.holds() for pod in world.pods.values()] == [2, 2]
        assert world.gateway.book.counts["identify"] == 4
        world.say(20)
        await world.all_came()

    play(valkey, scene, "a", "b")


def test_a_pod_that_stood_still_does_not_take_its_sessions_back(valkey: Client) -> None:
    """discordjs/discord.js#7355: a frozen process comes back and everything is doubled."""

    async def scene(world: World) -> None:
        world.pods["a"].freeze(6.0)
        for _ in range(20):
            world.say()
            await asyncio.sleep(0.1)
        await world.serves(4)
        await until(lambda: not world.pods["a"].frozen_s, "it to thaw", 20.0)
        for _ in range(20):
            world.say()
            await asyncio.sleep(0.1)
        await world.serves(4)
        await world.all_came()
        assert world.gateway.book.counts["identify"] == 4
        resumed = Counter(entry.shard for entry in world.gateway.book.of("resumed"))
        assert [resumed[shard] for shard in range(4)].count(0) == 2, "those of the other pod"
        moved = sum(entry.kind == "closed" and entry.code == 4000 for entry in world.gateway.book.entries)
        assert sum(resumed.values()) <= 2 + moved, "once by the successor, and for each hand-over since"

    play(valkey, scene, "a", "b")


def test_sessions_outlive_a_redis_that_loses_all_data(valkey: Client) -> None:
    """Sockets stay, each session is told again, also of a shard in which nothing happens: no identify is spent."""

    async def scene(world: World) -> None:
        world.say(3)
        await world.all_came()
        valkey.flushall()
        world.said.clear()
        world.say(3)
        await world.serves(16)
        await world.tell(16)
        await until(lambda: valkey.hlen(f"{Keys('1').namespace()}session:1") == 16, world.describe)
        assert world.codes() == []
        assert await world.pods["a"].drain()
        await world.serves(16)
        world.say(3)
        await world.all_came()
        assert (world.gateway.book.counts["identify"], world.gateway.book.counts["resumed"]) == (16, 8)

    play(valkey, scene, "a", "b", shards=16)


def test_an_outbox_that_is_full_while_redis_is_away_loses_no_event(valkey: Client) -> None:
    """Redis stands still; what outgrows the outbox is given up with its shard, and is heard again by a RESUME."""

    async def scene(world: World) -> None:
        valkey.client_pause(1500)
        world.say(30)
        await until(lambda: 4000 in world.codes(), lambda: "no shard was given up")
        await asyncio.sleep(1.5)
        await world.serves(2)
        await world.all_came()
        assert world.gateway.book.counts["identify"] == 2

    play(valkey, scene, "a", shards=2, most=(150, 1 << 26))


def test_a_replay_that_outgrows_the_outbox_is_read_as_fast_as_it_is_handed_on(
    valkey: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Shards that were away for long: whoever gave one up for it would hear all of it again, and again."""

    async def scene(world: World) -> None:
        away = Fault(do="silence", at="connect", times=None)
        world.gateway.script.add(away)
        assert world.gateway.act(Fault(do="reset")) == 2
        await until(lambda: world.gateway.book.counts["shut"] == 2, world.describe)
        world.say(400)
        world.gateway.script.faults.remove(away)
        await world.all_came()

    play(valkey, scene, "a", shards=2, most=(400, 1 << 26))
    assert [line for line in caplog.messages if "it is given up" in line] == []


def test_more_shards_when_discord_closes_one_for_there_are_too_few(valkey: Client) -> None:
    """Rapptz/discord.py#5128, andersfylling/disgord#184: 4011 stops the whole bot, and should make it grow."""

    async def scene(world: World) -> None:
        world.gateway.script.add(Fault(do="close", at="identify", code=4011, total=2, times=None))
        world.gateway.act(Fault(do="close", code=4009, shard=0))
        await until(lambda: world.look().head.stops, world.describe)
        await world.tell(4)
        await world.serves(4)
        assert world.look().head.stops == ()
        assert world.gateway.book.counts["identify"] == 2 + 1 + 4

    play(valkey, scene, "a", "b", shards=2)


def test_a_total_that_discord_does_not_allow_is_aborted_and_the_old_one_goes_on(valkey: Client) -> None:
    async def scene(world: World) -> None:
        world.gateway.script.add(Fault(do="close", at="identify", code=4010, total=3, times=None))
        await world.tell(3, rounds=3)
        await until(lambda: "no such shard" in world.look().note, world.describe)
        await world.serves(2)
        world.say(3)
        await world.all_came()
        assert world.look().head.stops == ()

    play(valkey, scene, "a", shards=2)


def both_totals(world: World) -> dict[tuple[int, int], str]:
    """(total, shard) -> state of its bind."""
    view = world.look().view
    return {(view.totals[version], shard): bind.state for (version, shard), bind in view.binds.items()}


@pytest.mark.parametrize("end", ["invalid", "reset"])
def test_a_new_total_waits_for_one_of_its_shards_that_has_fallen(
    valkey: Client, end: Literal["invalid", "reset"]
) -> None:
    """It was ready, and Discord has cut it off since: its guilds would have nobody."""

    async def scene(world: World) -> None:
        script = world.gateway.script
        late = Fault(do="silence", at="identify", shard=5, total=6, times=None)
        script.add(late)
        await world.tell(6, rounds=3)
        await until(lambda: both_totals(world).get((6, 0)) == "ready", world.describe, 10.0)
        for at in ("identify", "resume"):
            script.add(Fault(do="silence", at=at, shard=0, total=6, times=None))
        assert world.gateway.act(Fault(do=end, shard=0, total=6)) == 1
        script.faults.remove(late)
        await until(lambda: both_totals(world).get((6, 5)) == "ready", world.describe, 10.0)
        for _ in range(30):
            world.say()
            await asyncio.sleep(0.1)
        active = world.look().head.active
        assert active is not None
        assert active.total == 4
        script.faults.clear()
        await world.serves(6)
        world.say(3)
        await world.all_came()

    play(valkey, scene, "a", "b")


def test_a_new_total_waits_for_a_socket_of_the_old_one_that_hears_nothing_any_more(valkey: Client) -> None:
    """It is half-open before the first READY of the new one: what happens in between, only its session can tell.

    Its beat is answered no more; so it is given up, resumed and told, and then the new total takes over.
    """

    async def scene(world: World) -> None:
        world.say(3)
        await world.all_came()
        assert world.gateway.act(Fault(do="silence", shard=1, total=4)) == 1
        world.say(3)
        await world.tell(6, rounds=3)
        serving = asyncio.create_task(world.serves(6))
        while not serving.done():
            world.say()
            await asyncio.sleep(0.1)
        await serving
        await world.all_came()
        assert [entry.shard for entry in world.gateway.book.of("resumed")] == [1]
        assert world.gateway.book.counts["identify"] == 4 + 6

    play(valkey, scene, "a", "b")


def test_what_a_pod_cannot_read_in_redis_ends_nothing(valkey: Client) -> None:
    """A heartbeat of another kind (of another version, or of a person): it is told, and over when that is gone."""

    async def scene(world: World) -> None:
        stranger = "stranger#1"
        valkey.zadd(Keys("1").nodes(), {stranger: int(time.time() + 3600) * 1000})
        valkey.set(f"{Keys('1').namespace()}node:hb:{stranger}", "of another kind")
        valkey.hincrby(Keys("1").state(), "rev", 1)
        await asyncio.sleep(1.0)
        valkey.zrem(Keys("1").nodes(), stranger)
        valkey.delete(f"{Keys('1').namespace()}node:hb:{stranger}")
        await asyncio.sleep(NUMBERS.ttl_ms / 1000)
        assert world.codes() == []
        assert await world.pods["a"].drain()
        await world.serves(4)
        world.say(3)
        await world.all_came()

    play(valkey, scene, "a", "b")
