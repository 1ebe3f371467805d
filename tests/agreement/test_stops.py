"""Discord closes a shard for good while Redis is away: it is told when Redis is back, before the shard is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tasks.shards import vocabulary as v
from tasks.shards.operations import read_looked
from tests.agreement.scenes import fleet, pod_of

if TYPE_CHECKING:
    import redis

    from tests.agreement.world import World

CODE = 4014


def closed_for_good_while_redis_is_away(world: World, how: str, away_s: float) -> None:
    """Discord closes a shard of b, and would close whoever identifies."""
    world.restart_redis(away_s, how)
    world.run(1.0)
    world.discord.refuses = lambda _slot: CODE
    pod = pod_of(world, "b")
    slot, fence = next(iter(pod.connections.items()))
    del pod.connections[slot]
    world.feed(pod, v.Closed(slot, fence, f"closed with {CODE}", CODE))


def codes(world: World) -> list[int]:
    """What is stopped, as Redis has it."""
    pod = world.living()[0]
    return [stop.code for stop in read_looked(world.execute(pod.ops, pod.ops.look())).head.stops]


@pytest.mark.parametrize("how", ["kept", "empty"])
@pytest.mark.parametrize("away_s", [4.0, 40.0])
def test_nobody_tries_it_again(valkey: redis.Redis, how: str, away_s: float) -> None:
    """For less than a TTL and for more."""
    world = fleet(valkey, "abcd")
    before = len(world.discord.identifies)
    closed_for_good_while_redis_is_away(world, how, away_s)
    world.run(away_s + 120.0)
    assert len(world.discord.identifies) == before
    assert codes(world) == [CODE]
    assert sum(len(pod.connections) for pod in world.living()) >= 15, "what is connected stays so"
    world.discord.refuses = lambda _slot: 0
    world.execute(pod_of(world, "a").ops, pod_of(world, "a").ops.retry())
    world.until(lambda: world.served(16))
    assert len(world.discord.identifies) == before + 1
    assert world.twice == []


def test_when_the_answer_is_lost_it_is_said_again_and_changes_nothing(valkey: redis.Redis) -> None:
    """STOP is done, and the way back is cut: a shard that is not given back would be served by nobody."""
    world = fleet(valkey, "abcd")
    pod, before = pod_of(world, "b"), len(world.discord.identifies)
    world.slow_s = 0.8
    world.discord.refuses = lambda _slot: CODE
    slot, fence = next(iter(pod.connections.items()))
    del pod.connections[slot]
    world.feed(pod, v.Closed(slot, fence, f"closed with {CODE}", CODE))
    world.until(lambda: codes(world) == [CODE])
    world.cut_off(pod, 3.0)
    world.run(2.5)
    assert set(pod.state.stopping) == {slot}, "not answered"
    world.run(60.0)
    assert (pod.state.stopping, pod.state.releasing) == ({}, {})
    assert len(world.discord.identifies) == before


def test_who_dies_before_redis_is_back_leaves_one_more_try(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abcd")
    before = len(world.discord.identifies)
    closed_for_good_while_redis_is_away(world, "kept", 8.0)
    world.kill(pod_of(world, "b"))
    world.run(120.0)
    assert len(world.discord.identifies) == before + 1
    assert codes(world) == [CODE]
