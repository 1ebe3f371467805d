"""One random schedule: kills, frost, cuts, a Redis that fails, opinions of Discord; then calm, and what must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.agreement.world import World

if TYPE_CHECKING:
    import redis

    from tests.agreement.world import Pod

TOTALS = (8, 16, 24)
HOWS = ("kept", "empty", "older")
DEEDS = ("kill", "kill", "freeze", "cut", "restart", "drain", "start", "redis", "vote", "blind", "all")
NAMES = tuple(f"pod-{number}" for number in range(9))
MOST = 6


def storm(world: World, seconds: float) -> None:
    """Do harm at random for a while."""
    chance = world.chance
    end_s = world.now_s + seconds
    while world.now_s < end_s:
        world.run(chance.uniform(0.2, 6.0))
        deed, living = chance.choice(DEEDS), world.living()
        if deed in ("redis", "vote", "all"):
            _to_all(world, deed)
        elif deed != "start" and living:
            _to_one(world, deed, chance.choice(living))
        elif len(living) < MOST:
            _start(world, chance.choice(NAMES))


def _to_one(world: World, deed: str, pod: Pod) -> None:
    chance = world.chance
    match deed:
        case "kill":
            world.kill(pod)
        case "restart":
            world.kill(pod)
            world.at(chance.uniform(0.1, 5), lambda: _start(world, pod.name))
        case "freeze":
            world.freeze(pod, chance.uniform(0.5, 20))
        case "cut":
            world.cut_off(pod, chance.uniform(0.5, 20))
        case "drain":
            world.drain(pod)
        case _:
            world.discord.blind ^= {pod.name}


def _to_all(world: World, deed: str) -> None:
    chance = world.chance
    if deed == "all":
        for pod in world.living():
            world.freeze(pod, chance.uniform(5, 14))
    elif deed == "vote":
        world.discord.recommend(chance.choice(TOTALS))
    elif not world.away:
        world.take_snapshot()
        world.run(chance.uniform(0.0, 3.0))
        world.restart_redis(chance.uniform(0.0, 15.0), chance.choice(HOWS))


def _start(world: World, name: str) -> None:
    """A pod, unless one of its name lives."""
    if all(pod.name != name for pod in world.living()):
        world.start(name)


def schedule(client: redis.Redis, seed: int, seconds: float = 90.0, changes: dict[str, str] | None = None) -> World:
    """Harm, then calm; AssertionError when what must hold does not."""
    world = World(client, seed, lossy=(seed % 3) / 2, changes=changes)
    for number in range(1 + seed % 4):
        world.start(NAMES[number])
    storm(world, seconds)
    total = world.chance.choice(TOTALS)
    world.discord.blind.clear()
    world.discord.recommend(total)
    world.start("last")
    world.until(lambda: world.served(total), 500.0)
    assert world.twice == [], f"seed {seed}: {world.twice[:3]}"
    assert world.discord.too_close() == [], f"seed {seed}"
    return world
