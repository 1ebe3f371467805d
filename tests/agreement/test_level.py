"""Loads are levelled when a change of the total is over for a while, and not as its last deed: a hand-over is a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agreement.scenes import active_version, fleet, pod_of

if TYPE_CHECKING:
    import redis

    from tests.agreement.world import World


def holders(world: World) -> dict[tuple[int, int], str]:
    """Slot -> who has it."""
    return {slot: pod.name for pod in world.living() for slot in pod.state.owns}


@pytest.mark.parametrize("seed", range(4))
def test_nothing_moves_just_after_the_old_shards_are_closed(valkey: redis.Redis, seed: int) -> None:
    world = fleet(valkey, "abcd", seed=seed)
    world.discord.recommend(24)
    world.until(lambda: any(pod.state.head.pending for pod in world.living()), 300.0)
    world.kill(pod_of(world, "b"))  # others have its shards of both, as it comes
    world.until(lambda: world.served(24), 300.0)
    new = active_version(world)
    world.until(lambda: all(slot[0] == new for slot in holders(world)))
    before = holders(world)
    world.start("e")
    world.run(5.0)
    assert holders(world) == before
    world.run(60.0)
    assert max(world.loads().values()) - min(world.loads().values()) <= 1
