"""Pods with real connections, on a real server and against a Discord as strict as the real one.

More of these scenes are in tests/agreement/test_connections.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from app.local.discord.script import Fault
from app.probes.watching import shard_readings
from tests.shards.delivering import QUEUE
from tests.shards.holding import INTENTS, World, play
from tests.shards.listening import until
from throttle import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.servers import Client


def test_a_pod_that_drains_hands_its_sessions_over_and_nothing_is_lost(valkey: Client) -> None:
    async def scene(world: World) -> None:
        world.say(5)
        draining = asyncio.create_task(world.pods["a"].drain())
        while not draining.done():
            world.say()
            await asyncio.sleep(0.01)
        assert await draining
        await world.serves(4)
        world.say(5)
        await world.all_came()
        assert world.codes() == [4000, 4000]
        assert (world.gateway.book.counts["identify"], world.gateway.book.counts["resumed"]) == (4, 2)
        assert world.gateway.book.counts["over"] == 0, "no session ended"

    play(valkey, scene, "a", "b")


def test_a_new_total_takes_over_under_events_and_the_old_sessions_are_ended(valkey: Client) -> None:
    async def scene(world: World) -> None:
        world.say(5)
        await world.tell(6, rounds=3)
        serving = asyncio.create_task(world.serves(6))
        while not serving.done():
            world.say()
            await asyncio.sleep(0.02)
        await serving
        world.say(5)
        await world.all_came()
        assert world.gateway.book.counts["identify"] == 4 + 6
        assert world.codes() == [1000] * 4
        assert len(list(world.gateway.sessions)) == 6

    play(valkey, scene, "a", "b")


def test_intents_that_discord_refuses_are_tried_once_in_the_whole_fleet(valkey: Client) -> None:
    async def scene(world: World) -> None:
        world.gateway.script.add(Fault(do="close", at="identify", code=4014, times=None))
        before = world.gateway.book.counts["identify"]
        world.gateway.act(Fault(do="close", code=4009, shard=0))
        await until(lambda: world.look().head.stops, world.describe)
        await asyncio.sleep(1.0)
        assert world.gateway.book.counts["identify"] == before + 1
        (stop,) = world.look().head.stops
        assert (stop.scope, stop.code) == (f"intents {INTENTS}", 4014)
        world.gateway.script.faults.clear()
        assert world.person.ask(world.person.operations.retry()) == 1
        await world.serves(2)
        assert world.gateway.book.counts["identify"] == before + 2

    play(valkey, scene, "a", "b", shards=2)


def test_what_waits_in_a_pod_is_told_with_its_age(valkey: Client) -> None:
    async def scene(world: World) -> None:
        (pod,) = world.pods.values()

        def readings() -> tuple[float, ...]:
            found = shard_readings(pod.driver.figures(), keeps_door=False)
            names = ("waiting", "waiting_bytes", "oldest_seconds")
            return tuple(found[f"headroom_shard_events_{name}"][0][1] for name in names)

        assert readings() == (0, 0, 0)
        valkey.set(QUEUE, "no list")  # so that nothing goes on
        world.say()
        await until(lambda: readings()[0] == 8, world.describe)
        _, size, age_s = readings()
        assert size > 8 * len("user_id")
        await asyncio.sleep(0.1)
        assert readings()[1:] > (size, age_s)
        valkey.delete(QUEUE)
        await world.all_came()
        await until(lambda: readings() == (0, 0, 0), world.describe)

    play(valkey, scene, "a", shards=2)


def test_a_session_that_is_over_is_told(valkey: Client) -> None:
    told: list[tuple[object, ...]] = []

    def hear(event: events.Event, values: Sequence[object]) -> None:
        told.extend([tuple(values)] if event is events.SHARD_SESSION_ENDED else [])

    async def scene(world: World) -> None:
        events.subscribe(hear)
        world.gateway.act(Fault(do="close", code=4009, shard=0))
        await until(lambda: world.gateway.book.counts["ready"] == 3, world.describe)
        world.gateway.script.add(Fault(do="silence", at="resume", times=None))
        world.gateway.act(Fault(do="reset", shard=1))
        await until(lambda: world.gateway.book.counts["ready"] == 4, world.describe)

    try:
        play(valkey, scene, "a", shards=2)
    finally:
        events.unsubscribe(hear)
    assert [(shard, why) for _, shard, why in told] == [(0, "closed"), (1, "unanswered")]
