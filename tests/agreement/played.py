"""The scenes of cases.py: Discord does something to a shard of two pods, and what follows is looked at.

Each begins with two pods that hold a shard each, and ends with both shards served or with what keeps one from it. It
returns what a person finds who looks in between, where that is over at its end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from app.local.discord.bot import Bot
from app.local.discord.rest import RestStandIn, Scripted
from app.local.discord.script import Fault
from tasks.shards.operations import read_outcome
from tasks.shards.rest import Rest
from tasks.shards.rounds import Numbers, VoteRounds
from tasks.shards.voter import vote
from tests.shards.holding import LONG_S, World
from tests.shards.listening import TOKEN, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tasks.shards.answers import Looked

    Scene = Callable[[World, int], Awaitable[Looked | None]]

BEAT_S = 0.1
AWAY_S = 9.0


class Counted:
    """How often shards identified and resumed since it was made."""

    def __init__(self, world: World) -> None:
        self._world, self._before = world, dict(world.gateway.book.counts)

    def so_far(self) -> tuple[int, int]:
        """IDENTIFYs, and sessions that were resumed."""
        counts = self._world.gateway.book.counts
        return tuple(counts[name] - self._before.get(name, 0) for name in ("identify", "resumed"))  # pyright: ignore[reportReturnType]

    async def come_to(self, identified: int, resumed: int) -> None:
        """Wait for that, and see that both shards serve, that each event comes once, and that it stays so."""
        world = self._world
        await until(
            lambda: self.so_far() >= (identified, resumed), lambda: f"{self.so_far()} {world.describe()}", LONG_S
        )
        await world.serves(2)
        world.say()
        await world.all_came()
        assert self.so_far() == (identified, resumed)


async def after(world: World, fault: Fault, identified: int, resumed: int) -> None:
    """Discord does something now."""
    counted = Counted(world)
    world.say()
    world.gateway.act(fault)
    world.say()
    await counted.come_to(identified, resumed)


async def op_7(world: World, _code: int) -> None:
    await after(world, Fault(do="reconnect", shard=0), 0, 1)
    assert world.codes() == [4000]
    world.gateway.script.add(Fault(do="reconnect", at="hello"))
    await after(world, Fault(do="reset", shard=0), 0, 1)


async def op_9_true(world: World, _code: int) -> None:
    await after(world, Fault(do="invalid", resumable=True, shard=0), 0, 1)


async def op_9_false(world: World, _code: int) -> None:
    world.gateway.script.add(Fault(do="invalid", at="resume", shard=0))
    counted = Counted(world)
    world.gateway.act(Fault(do="reset", shard=0))
    await counted.come_to(1, 0)


async def op_9_to_identify(world: World, _code: int) -> None:
    world.gateway.script.add(Fault(do="invalid", at="identify"))
    counted = Counted(world)
    world.gateway.act(Fault(do="close", code=4009, shard=0))
    await counted.come_to(2, 0)


async def resumed(world: World, code: int) -> None:
    await after(world, Fault(do="close", code=code, shard=0), 0, 1)


async def new_session(world: World, code: int) -> None:
    counted = Counted(world)
    world.gateway.act(Fault(do="close", code=code, shard=0))
    await counted.come_to(1, 0)


async def lost(world: World, _code: int) -> None:
    await after(world, Fault(do="reset", shard=0), 0, 1)


async def dead_resume_url(world: World, _code: int) -> None:
    await world.gateway.resume_door.set("refuses")
    await after(world, Fault(do="reset", shard=0), 0, 1)


async def handshake_refused(world: World, _code: int) -> None:
    world.gateway.script.add(Fault(do="status", at="connect", code=429, times=2))
    await after(world, Fault(do="reset", shard=0), 0, 1)


async def garbled(world: World, _code: int) -> None:
    await after(world, Fault(do="garble", shard=0), 0, 1)
    assert world.codes() == [4000]


async def loops(world: World, _code: int) -> None:
    world.gateway.script.add(Fault(do="close", code=1011, shard=0, times=4, after_s=0.02))
    await after(world, Fault(do="close", code=1011, shard=0), 0, 5)


# ---------------------------------------------------------------- silence


async def no_hello(world: World, _code: int) -> None:
    world.gateway.script.add(Fault(do="silence", at="hello", door="resume"))
    await after(world, Fault(do="reset", shard=0), 0, 1)


async def no_ready(world: World, _code: int) -> None:
    world.gateway.script.add(Fault(do="silence", at="identify"))
    counted = Counted(world)
    world.gateway.act(Fault(do="close", code=4009, shard=0))
    await counted.come_to(2, 0)


async def no_resumed(world: World, _code: int) -> None:
    world.gateway.script.add(Fault(do="silence", at="resume", times=3))
    counted = Counted(world)
    world.gateway.act(Fault(do="reset", shard=0))
    await counted.come_to(1, 0)


async def zombie(world: World, _code: int) -> None:
    world.gateway.terms.heartbeat_s = BEAT_S
    await after(world, Fault(do="reconnect", shard=0), 0, 1)
    await after(world, Fault(do="silence", shard=0), 0, 1)
    assert world.codes() == [4000, 4000]


async def guild_is_missing(world: World, _code: int) -> None:
    world.gateway.begin_outage(next(iter(world.gateway.guilds.ids)))
    counted = Counted(world)
    world.gateway.act(Fault(do="close", code=4009))
    await until(lambda: counted.so_far() == (2, 0), world.describe)
    await world.serves(2)


# ---------------------------------------------------------------- for good


async def stopped(world: World, code: int) -> Counted:
    """One shard is closed for good, is tried once by all pods together, and the other one stays."""
    world.gateway.script.add(Fault(do="close", at="identify", code=code, total=2, times=None))
    counted = Counted(world)
    world.gateway.act(Fault(do="close", code=4009, shard=0))
    await until(lambda: [stop.code for stop in world.look().head.stops] == [code], world.describe)
    await asyncio.sleep(0.5)
    assert counted.so_far() == (1, 0), "no pod after the first"
    world.said.clear()
    return counted


async def useless_credentials(world: World, code: int) -> None:
    await stopped(world, code)
    assert [bind.state for (_, shard), bind in world.look().view.binds.items() if shard == 1] == ["ready"]


async def refused_intents(world: World, code: int) -> None:
    counted = await stopped(world, code)
    world.gateway.act(Fault(do="reset", shard=1))
    await until(lambda: counted.so_far() == (1, 1), world.describe)


async def pending_not_allowed(world: World, code: int) -> None:
    world.gateway.script.add(Fault(do="close", at="identify", code=code, total=3, times=None))
    await world.tell(3, rounds=3)
    await until(lambda: "no such shard" in world.look().note, world.describe)
    await Counted(world).come_to(0, 0)


async def active_not_allowed(world: World, code: int) -> Looked:
    counted, looked = await stopped(world, code), world.look()
    await world.tell(3, rounds=3)
    await world.serves(3)
    assert counted.so_far() == (1 + 3, 0)
    return looked


async def more_shards(world: World, code: int) -> None:
    counted = await stopped(world, code)
    await world.tell(4)
    await world.serves(4)
    assert counted.so_far() == (1 + 4, 0)


# ---------------------------------------------------------------- limits


async def budget_is_spent(world: World, _code: int) -> None:
    world.gateway.bot.remaining = 3
    await world.tell(2)
    counted = Counted(world)
    world.gateway.act(Fault(do="close", code=4009, shard=0))
    await asyncio.sleep(1.0)
    world.gateway.act(Fault(do="reset", shard=1))
    await until(lambda: counted.so_far()[1] == 1, world.describe)
    assert counted.so_far() == (0, 1)


async def budget_does_not_pay(world: World, _code: int) -> None:
    world.gateway.bot.remaining = 100
    counted = Counted(world)
    await world.tell(4, rounds=3)
    await until(lambda: "refused" in world.look().note, world.describe)
    assert read_outcome(world.person.ask(world.person.operations.target(4))) == "budget"
    await counted.come_to(0, 0)


async def asks(scripted: Scripted, token: str, wanted: int) -> int:
    """A pod asks Discord in round after round until it was told so often, or asks no more; how often it asked."""
    told: list[Any] = []
    with RestStandIn(Bot(TOKEN, shards=2)) as discord:
        discord.script.append(scripted)
        async with Rest(discord.url, token, within_s=0.2, first_wait_s=0.05) as rest:
            voting = asyncio.create_task(vote(VoteRounds(Numbers(every_s=0.02)), rest, told.append))
            await until(lambda: len(told) >= wanted or voting.done(), "votes", LONG_S)
            voting.cancel()
            await asyncio.wait({voting})
        assert discord.impatient == 0
        return discord.requests


async def asked_too_often(_world: World, _code: int) -> None:
    await asks(Scripted(429, headers={"Retry-After": "1"}), TOKEN, 2)


async def unknown_token(_world: World, _code: int) -> None:
    assert await asks(Scripted(401), "another", 1) == 1


async def without_redis(world: World, _code: int) -> None:
    counted, loop = Counted(world), asyncio.get_running_loop()
    back_s = loop.time() + AWAY_S
    world.client.client_pause(int(AWAY_S * 1000))
    await asyncio.sleep(3.2)  # the leases are over
    world.gateway.act(Fault(do="reset", shard=0))
    world.gateway.act(Fault(do="close", code=4009, shard=1))
    await until(lambda: counted.so_far()[1], "it to resume", back_s - loop.time())
    assert counted.so_far() == (0, 1)
    await asyncio.sleep(back_s - loop.time())
    await counted.come_to(1, 1)
