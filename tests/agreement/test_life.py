"""Deaths, a Redis that fails, pods that come and go: scenes on a clock of their own, in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tasks.shards.operations import read_looked
from tests.agreement.scenes import active, active_version, fleet, names, pod_of
from tests.agreement.world import World

if TYPE_CHECKING:
    import redis

TTL_S, SCAN_S, RESUME_S = 9.0, 2.0, 1.0


# ---------------------------------------------------------------- death


@pytest.mark.parametrize("seed", range(5))
def test_a_dead_pods_shards_are_served_again_in_time_and_resumed(valkey: redis.Redis, seed: int) -> None:
    world = fleet(valkey, "abcd", seed=seed)
    before = len(world.discord.identifies)
    orphans = [slot for slot, own in pod_of(world, "b").state.owns.items() if own.ready]
    assert orphans
    world.kill(pod_of(world, "b"))
    took_s = world.until(lambda: world.served(16))
    assert took_s <= TTL_S + SCAN_S + RESUME_S
    assert len(world.discord.identifies) == before
    assert world.twice == []


def test_what_is_connected_stays_where_it_is_when_a_pod_dies(valkey: redis.Redis) -> None:
    world = fleet(valkey, names(6), 24)
    before = {slot: pod.name for pod in world.living() for slot in pod.state.owns}
    world.kill(pod_of(world, "pod-3"))
    world.until(lambda: world.served(24))
    after = {slot: pod.name for pod in world.living() for slot in pod.state.owns}
    assert all(after[slot] == name for slot, name in before.items() if name != "pod-3")


def test_a_container_that_restarts_under_its_name_owns_nothing_of_before(valkey: redis.Redis) -> None:
    """And is not waited for until the TTL of the old one is over."""
    world = fleet(valkey, "abc")
    world.kill(pod_of(world, "a"))
    world.run(4.0)
    world.start("a")
    took_s = world.until(lambda: world.served(16))
    assert took_s < TTL_S - 4.0
    assert world.twice == []


def test_a_frozen_pod_gives_its_shards_up_before_others_take_them(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abc")
    frozen = pod_of(world, "a")
    world.freeze(frozen, 30.0)
    world.until(lambda: not any(frozen.state.holds(slot, world.now_s) for slot in frozen.state.owns), TTL_S)
    world.run(25.0)
    assert all(len(world.holders((active_version(world), shard))) == 1 for shard in range(16))
    world.until(lambda: world.served(16))
    assert world.twice == []


def test_more_than_half_gone_at_once_is_not_believed_for_a_while(valkey: redis.Redis) -> None:
    world = fleet(valkey, names(5))
    for name in names(3):
        world.kill(pod_of(world, name))
    world.run(TTL_S + 1)
    assert all(pod.state.head.guard_ms for pod in world.living())
    took_s = world.until(lambda: world.served(16))
    assert took_s <= TTL_S + 2 * SCAN_S + RESUME_S
    assert world.twice == []


# ---------------------------------------------------------------- Redis


@pytest.mark.parametrize("how", ["kept", "empty", "older"])
def test_connections_stay_while_redis_is_away_and_are_told_afterwards(valkey: redis.Redis, how: str) -> None:
    """For longer than a TTL: no identify, nobody moves, and within a TTL and two scans all is as it was."""
    world = fleet(valkey, "abc")
    before = {slot: pod.name for pod in world.living() for slot in pod.state.owns}
    identifies, version = len(world.discord.identifies), active(world)
    world.take_snapshot()
    world.restart_redis(60.0, how)
    world.run(60.1)
    assert world.until(lambda: all(len(world.holders(slot)) == 1 for slot in before)) <= TTL_S + 2 * SCAN_S + 1
    assert {slot: pod.name for pod in world.living() for slot in pod.state.owns} == before
    assert len(world.discord.identifies) == identifies
    assert active(world) == version
    assert world.twice == []


def test_an_old_number_does_not_come_back_after_a_loss_of_data(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abc")
    n, fence = pod_of(world, "a").state.known.n, pod_of(world, "a").state.known.fence
    world.restart_redis(1.0, "empty")
    world.run(20.0)
    looked = read_looked(world.execute(pod_of(world, "a").ops, pod_of(world, "a").ops.look()))
    assert (looked.head.n, looked.head.active) == (n, pod_of(world, "b").state.head.active)
    assert looked.head.fence >= fence
    world.discord.recommend(24)
    world.until(lambda: world.served(24), 300.0)
    assert pod_of(world, "a").state.known.n > n


def test_a_clock_that_is_set_back_holds_nothing_up(valkey: redis.Redis) -> None:
    """By minutes, at a fail-over or by a person: a dead pod is noticed, and an identify allowed, as soon as ever."""
    world = fleet(valkey, "abc")
    world.kill(pod_of(world, "a"))
    world.behind_s = 300.0
    world.until(lambda: world.served(16), 60.0)
    world.restart_redis(1.0, "data")
    world.run(2.0)
    world.behind_s += 300.0
    world.discord.recommend(24)
    world.until(lambda: world.served(24), 300.0)
    world.behind_s += 300.0
    world.discord.recommend(16)
    world.until(lambda: world.served(16), 300.0)
    assert world.twice == []


def test_two_round_trips_a_second(valkey: redis.Redis) -> None:
    """In steady state, per pod; the votes come on top, twice in half a minute."""
    world = fleet(valkey, names(6), 24)
    world.run(30.0)
    assert world.served(24)
    world.round_trips.clear()
    world.run(60.0)
    votes = 2 * 60 / 28 + 2
    assert all(count <= 2 * 60 + votes for count in world.round_trips.values())


# ---------------------------------------------------------------- moving


def test_a_drained_pod_hands_over_without_an_identify(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abcd")
    identifies = len(world.discord.identifies)
    world.drain(pod_of(world, "c"))
    world.until(lambda: len(world.living()) == 3 and world.served(16))
    assert len(world.discord.identifies) == identifies
    assert world.twice == []


def test_shards_move_slowly_to_a_pod_that_joins(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abc", 24)
    identifies = len(world.discord.identifies)
    world.start("d")
    world.run(8.0)
    assert len(pod_of(world, "d").state.owns) <= 3
    world.run(120.0)
    loads = world.loads()
    assert max(loads.values()) - min(loads.values()) <= 1
    assert world.served(24)
    assert len(world.discord.identifies) == identifies


def test_a_pods_own_limit_holds(valkey: redis.Redis) -> None:
    world = World(valkey, 5)
    world.start("small", limit=2)
    world.start("large")
    world.until(lambda: world.served(16))
    assert world.loads() == {"small": 2, "large": 14}
