"""What the scenes begin with, and ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.agreement.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable

    import redis

    from tests.agreement.world import Pod


def fleet(client: redis.Redis, names: Iterable[str], total: int = 16, *, seed: int = 1, lossy: float = 0.0) -> World:
    """Pods that serve so many shards."""
    world = World(client, seed, lossy=lossy)
    world.discord.recommend(total)
    for name in names:
        world.start(name)
    world.until(lambda: world.served(total))
    world.run(30.0)  # until the loads are level
    world.until(lambda: world.served(total))
    return world


def names(count: int) -> list[str]:
    return [f"pod-{number}" for number in range(count)]


def pod_of(world: World, name: str) -> Pod:
    (found,) = [pod for pod in world.living() if pod.name == name]
    return found


def active(world: World) -> tuple[int, int]:
    """Version and total of the active target, as all pods see it."""
    (target,) = {pod.state.head.active for pod in world.living()}
    assert target is not None
    return target.version, target.total


def active_version(world: World) -> int:
    """Of the active target, as some pod sees it."""
    return next(pod.state.head.active.version for pod in world.living() if pod.state.head.active)
