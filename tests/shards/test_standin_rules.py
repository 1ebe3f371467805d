"""The stand-in for Discord's gateway closes, refuses and counts as Discord does: told by a client by hand."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.shards.plain import INTENTS, TOKEN, Plain, gateway

if TYPE_CHECKING:
    from collections.abc import Coroutine

WHO: dict[str, Any] = {"token": TOKEN, "intents": INTENTS, "properties": {}}


def run(scene: Coroutine[Any, Any, None]) -> None:
    """A scene in a loop of its own."""
    asyncio.run(asyncio.wait_for(scene, 20.0))


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", 4012),
        ("v=8&encoding=json", 4012),
        ("v=10", 4002),
        ("v=10&encoding=etf", 4002),
        ("v=10&encoding=json&compress=zstd-stream", 4002),
    ],
)
def test_an_address_that_is_not_spoken_is_closed(query: str, code: int) -> None:
    async def scene() -> None:
        async with gateway() as discord, Plain(discord.url, query) as client:
            assert await client.code() == code

    run(scene())


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", 4002),
        ("[]", 4002),
        (b"\xff\xfe", 4002),
        (b'{"op":3,"d":null}', 4003),
        ({"op": 1, "d": "x"}, 4002),
        ({"op": 1, "d": None, "fill": "x" * 4096}, 4002),
        ({"op": 5}, 4001),
        ({"op": True}, 4001),
        ({"op": 10}, 4001),
        ({"op": 3, "d": {}}, 4003),
        ({"op": 2, "d": {**WHO, "token": "another"}}, 4004),
        ({"op": 6, "d": {"token": "another", "session_id": "x", "seq": 1}}, 4004),
        ({"op": 6, "d": {"token": TOKEN, "session_id": "x", "seq": None}}, 4002),
        ({"op": 2, "d": {"token": TOKEN, "intents": 1}}, 4002),
        ({"op": 2, "d": {**WHO, "shard": [0]}}, 4002),
        ({"op": 2, "d": {**WHO, "shard": [2, 2]}}, 4010),
        ({"op": 2, "d": {**WHO, "shard": [0, 3]}}, 4010),
        ({"op": 2, "d": {**WHO, "shard": [0, 2]}}, 4011),
        ({"op": 2, "d": {**WHO, "shard": [0, 4], "intents": None}}, 4013),
        ({"op": 2, "d": {**WHO, "shard": [0, 4], "intents": 1 << 18}}, 4013),
        ({"op": 2, "d": {**WHO, "shard": [0, 4], "intents": 1 << 1}}, 4014),
    ],
    ids=str,
)
def test_what_may_not_be_sent_is_closed(message: Any, code: int) -> None:
    async def scene() -> None:
        async with gateway(guilds=4, guilds_per_shard=1, multiple=2) as discord, Plain(discord.url) as client:
            await client.op(10)
            await client.socket.send(message if isinstance(message, str | bytes) else json.dumps(message))
            assert await client.code() == code
            assert [entry.code for entry in discord.book.of("shut")] == [code]

    run(scene())


def test_a_second_identify_is_closed_and_the_session_stays() -> None:
    async def scene() -> None:
        async with gateway() as discord:
            async with Plain(discord.url) as client:
                ready = await client.ready()
                await client.send(2, WHO)
                assert await client.code() == 4005
            async with Plain(ready["resume_gateway_url"]) as client:
                await client.resume(ready, 5)
                await client.until("RESUMED")

    run(scene())


def test_who_sends_too_much_is_closed_and_may_resume() -> None:
    async def scene() -> None:
        async with gateway(sends=10) as discord, Plain(discord.url) as client:
            ready = await client.ready()
            for _ in range(9):
                await client.send(1, client.sequence)
            assert discord.book.of("shut") == []
            await client.send(1, client.sequence)
            assert await client.code() == 4008
            assert ready["session_id"] in discord.sessions.by_name

    run(scene())


def test_who_does_not_beat_is_closed_and_who_beats_is_not() -> None:
    async def scene() -> None:
        async with gateway(heartbeat_s=0.6) as discord, Plain(discord.url) as silent, Plain(discord.url) as beating:
            ready, _ = await silent.ready(0, 2), await beating.ready(1, 2)
            assert {(await beating.next())["t"] for _ in range(2)} == {"GUILD_CREATE"}
            while not discord.book.of("shut"):
                await beating.send(1, beating.sequence)
                await beating.op(11)
                await asyncio.sleep(0.05)
            assert await silent.code() == 4009
            assert ready["session_id"] not in discord.sessions.by_name
            assert len(list(discord.sessions)) == 1
            assert [entry.shard for entry in discord.book.of("shut")] == [0]

    run(scene())


def test_who_does_not_identify_is_closed() -> None:
    async def scene() -> None:
        async with gateway(unidentified_s=0.1) as discord, Plain(discord.url) as client:
            assert await client.code() == 4009

    run(scene())


def test_a_bucket_takes_one_identify_at_a_time_of_both_totals() -> None:
    async def scene() -> None:
        async with (
            gateway(concurrency=4, identify_every_s=60.0) as discord,
            Plain(discord.url) as first,
            Plain(discord.url) as second,
            Plain(discord.url) as third,
        ):
            await first.ready(1, 8)
            await second.identify(5, 6)
            assert await second.op(9) is False
            await third.ready(2, 6)
            assert [entry.shard for entry in discord.book.of("refused")] == [5]
            assert [entry.bucket for entry in discord.book.of("identify")] == [1, 1, 2]
            assert discord.bot.remaining == 997
            await second.send(3, {})
            assert await second.code() == 4003

    run(scene())


def test_after_the_interval_a_bucket_takes_the_next_on_the_same_socket() -> None:
    async def scene() -> None:
        async with (
            gateway(concurrency=1, identify_every_s=60.0) as discord,
            Plain(discord.url) as client,
            Plain(discord.url) as other,
        ):
            await other.ready(0, 2)
            await client.identify(1, 2)
            assert await client.op(9) is False
            discord.terms.identify_every_s = 0.0
            await client.send(2, {**WHO, "shard": [1, 2]})
            assert (await client.until("READY"))["shard"] == [1, 2]

    run(scene())


def test_one_identify_too_many_ends_all_sessions_and_the_token() -> None:
    async def scene() -> None:
        async with gateway(total=2) as discord:
            async with Plain(discord.url) as first, Plain(discord.url) as second, Plain(discord.url) as third:
                ready = await first.ready(0, 3)
                await second.ready(1, 3)
                await third.identify(2, 3)
                assert [await client.code() for client in (first, second, third)] == [4004] * 3
                assert list(discord.sessions) == []
            async with Plain(discord.url) as again:
                await again.resume(ready, 1)
                assert await again.code() == 4004

    run(scene())


def test_a_resume_costs_nothing_of_the_day() -> None:
    async def scene() -> None:
        async with gateway(total=1, concurrency=1) as discord:
            async with Plain(discord.url) as client:
                ready = await client.ready()
            for _ in range(3):
                async with Plain(discord.url) as client:
                    await client.resume(ready, 1)
                    await client.until("RESUMED")
            assert discord.bot.remaining == 0

    run(scene())
