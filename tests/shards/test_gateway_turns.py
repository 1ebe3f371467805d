"""Which shards of a pod may wait for the gate: one of each bucket, the lowest first."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from tasks.shards.gateway.turns import Turns


@pytest.mark.parametrize("buckets", [1, 2, 16])
def test_one_of_each_bucket_has_its_turn_the_lowest_first(buckets: int) -> None:
    order: list[int] = []
    at_it: list[int] = []

    async def one(turns: Turns, shard: int) -> None:
        async with turns.turn((0 if shard < 6 else 1, shard)):
            at_it.append(shard)
            assert len({each % buckets for each in at_it}) == len(at_it)
            order.append(shard)
            await asyncio.sleep(0)
            at_it.remove(shard)

    async def run() -> None:
        turns = Turns(lambda: buckets)
        async with AsyncExitStack() as held:
            for bucket in range(buckets):
                await held.enter_async_context(turns.turn((0, 16 + bucket)))
            waiting = [asyncio.create_task(one(turns, shard)) for shard in (7, 3, 5, 1, 4, 2)]
            await asyncio.sleep(0)
            waiting[2].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert len(turns) == 0

    asyncio.run(run())
    for bucket in range(buckets):
        mine = [shard for shard in order if shard % buckets == bucket]
        assert mine == sorted(mine)
    assert sorted(order) == [1, 2, 3, 4, 7]


def test_who_is_cancelled_as_its_turn_comes_gives_it_on() -> None:
    async def run() -> None:
        turns, got = Turns(lambda: 1), list[int]()

        async def one(shard: int) -> None:
            async with turns.turn((0, shard)):
                got.append(shard)

        async with turns.turn((0, 0)):
            first, second = asyncio.create_task(one(1)), asyncio.create_task(one(2))
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert got == [2]

    asyncio.run(run())
