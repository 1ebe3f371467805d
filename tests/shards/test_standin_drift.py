"""Copies of two sessions drift apart as Discord's do: in time and between guilds, never within a guild."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

import pytest

from tests.shards.plain import Plain, gateway, until

EVENTS = 400


async def heard(client: Plain, into: list[dict[str, Any]]) -> None:
    """Hear of messages, for ever."""
    while True:
        into.append(await client.until("MESSAGE_CREATE"))


@pytest.mark.parametrize(("lag_s", "leaves_out"), [(0.2, 0.0), (0.0, 0.2), (0.2, 0.2)])
def test_two_sessions_hear_the_same_of_a_guild_and_else_another_order(lag_s: float, leaves_out: float) -> None:
    async def scene() -> None:
        async with (
            gateway(guilds=10, identify_every_s=0.0, lag_s=lag_s, leaves_out=leaves_out) as discord,
            Plain(discord.url) as first,
            Plain(discord.url) as second,
        ):
            copies: list[list[dict[str, Any]]] = [[], []]
            await first.ready()
            await second.ready()
            tasks = [
                asyncio.create_task(heard(client, copy)) for client, copy in zip((first, second), copies, strict=True)
            ]
            guilds = list(discord.guilds.ids)
            for number in range(EVENTS):
                discord.say(guilds[number % 10], "MESSAGE_CREATE", {"id": str(number)})
                if number % 20 == 0:
                    await asyncio.sleep(0.01)
                if number == EVENTS // 2:
                    discord.terms.lag_s /= 4
            await until(
                lambda: {event["id"] for copy in copies for event in copy} >= set(map(str, range(EVENTS))), "all"
            )
            if not leaves_out:
                await until(lambda: [len(copy) for copy in copies] == [EVENTS, EVENTS], "both copies")
            else:
                assert Counter(event["id"] for copy in copies for event in copy).most_common(1)[0][1] == 2
                assert min(map(len, copies)) < EVENTS
            for task in tasks:
                task.cancel()
            for copy in copies:
                by_guild: defaultdict[str, list[int]] = defaultdict(list)
                for event in copy:
                    by_guild[event["guild_id"]].append(int(event["id"]))
                assert all(numbers == sorted(numbers) for numbers in by_guild.values())
            orders = [[event["id"] for event in copy] for copy in copies]
            assert orders[0] != orders[1]
            assert (orders[0] != sorted(orders[0], key=int)) == bool(lag_s)

    asyncio.run(asyncio.wait_for(scene(), 20.0))
