"""Pods with real connections, on a real server and against a strict Discord: scenes that take their time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from app.local.discord.script import Fault
from tests.shards.holding import World, play
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
        await world.tell(3, urgent=True)
        await until(lambda: "no such shard" in world.look().note, world.describe)
        await world.serves(2)
        world.say(3)
        await world.all_came()
        assert world.look().head.stops == ()

    play(valkey, scene, "a", shards=2)
