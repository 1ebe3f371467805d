"""Sessions of the stand-in: kept, replayed, taken over, ended; and who hears which event."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.shards.plain import INTENTS, TOKEN, Plain, gateway, until

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from app.local.discord.gateway import Gateway

PACKED = "v=10&encoding=json&compress=zlib-stream"


def run(scene: Coroutine[Any, Any, None]) -> None:
    """A scene in a loop of its own."""
    asyncio.run(asyncio.wait_for(scene, 20.0))


def guilds_of(discord: Gateway, shard: int, total: int) -> list[int]:
    """The ids of one shard's guilds."""
    return [guild for guild in discord.guilds.ids if (guild >> 22) % total == shard]


async def gone(discord: Gateway, session: str) -> None:
    """Wait until the book says that a session is over."""
    await until(lambda: session in {entry.session for entry in discord.book.of("over")}, "the end of a session")


def test_ready_names_the_guilds_of_the_shard_and_they_follow() -> None:
    async def scene() -> None:
        async with gateway(guilds=9, trickle_s=0.01) as discord, Plain(discord.url, PACKED) as client:
            mine = [str(guild) for guild in guilds_of(discord, 1, 2)]
            ready = await client.ready(1, 2)
            assert ready["guilds"] == [{"id": guild, "unavailable": True} for guild in mine]
            assert len(mine) in {4, 5}
            assert discord.book.of("settled") == []
            assert [(await client.until("GUILD_CREATE"))["id"] for _ in mine] == mine
            assert client.sequence == len(mine) + 1
            await until(lambda: discord.book.of("settled"), "the guilds")

    run(scene())


def test_a_session_hears_of_a_guild_from_its_guild_create_on() -> None:
    async def scene() -> None:
        async with gateway(guilds=3, trickle_s=0.05) as discord, Plain(discord.url) as client:
            *_, last = discord.guilds.ids
            await client.ready()
            discord.say(last, "MESSAGE_CREATE", {"id": "1"})
            for _ in range(3):
                await client.until("GUILD_CREATE")
            discord.say(last, "MESSAGE_CREATE", {"id": "2"})
            assert (await client.next())["d"]["id"] == "2"

    run(scene())


@pytest.mark.parametrize("query", [PACKED, "v=9&encoding=json"])
@pytest.mark.parametrize("door", ["main", "resume"])
def test_what_was_missed_is_replayed_in_order(query: str, door: str) -> None:
    async def scene() -> None:
        async with gateway(guilds=2) as discord:
            first, second = discord.guilds.ids
            async with Plain(discord.url, query) as client:
                ready = await client.ready()
                assert ready["v"] == int(query[2:4].rstrip("&"))
                discord.say(first, "MESSAGE_CREATE", {"id": "1"})
                await client.until("MESSAGE_CREATE")
                seen = client.sequence
                discord.say(first, "MESSAGE_CREATE", {"id": "2"})
            discord.say(second, "MESSAGE_CREATE", {"id": "3"})
            url = discord.url if door == "main" else ready["resume_gateway_url"]
            async with Plain(url, query) as client:
                await client.resume(ready, seen)
                assert [(await client.next())["d"]["id"] for _ in range(2)] == ["2", "3"]
                assert (await client.next())["t"] == "RESUMED"
                discord.say(second, "MESSAGE_CREATE", {"id": "4"})
                assert (await client.next())["d"]["id"] == "4"
            assert [entry.why for entry in discord.book.of("resume")] == [door]

    run(scene())


@pytest.mark.parametrize("code", [1000, 1001])
def test_who_closes_like_that_has_ended_the_session(code: int) -> None:
    async def scene() -> None:
        async with gateway() as discord:
            async with Plain(discord.url) as client:
                ready = await client.ready()
                await client.socket.close(code)
            await gone(discord, ready["session_id"])
            async with Plain(discord.url) as client:
                await client.resume(ready, 1)
                assert await client.op(9) is False

    run(scene())


@pytest.mark.parametrize("how", ["4000", "1011", "none", "dropped"])
def test_who_goes_otherwise_finds_it_again(how: str) -> None:
    async def scene() -> None:
        async with gateway() as discord:
            async with Plain(discord.url) as client:
                ready = await client.ready()
                if how == "dropped":
                    client.socket.transport.abort()
                elif how == "none":
                    client.socket.transport.write_eof()
                else:
                    await client.socket.close(int(how))
            async with Plain(discord.url) as client:
                await client.resume(ready, 5)
                assert (await client.next())["t"] == "RESUMED"

    run(scene())


def test_a_session_that_nobody_resumes_is_gone_in_time() -> None:
    async def scene() -> None:
        async with gateway(resume_window_s=0.1) as discord:
            async with Plain(discord.url) as client:
                ready = await client.ready()
            await gone(discord, ready["session_id"])
            discord.terms.resume_window_s = 60.0
            async with Plain(discord.url) as client:
                await client.resume(ready, 1)
                assert await client.op(9) is False
                await client.send(2, {"token": TOKEN, "intents": INTENTS, "properties": {}, "shard": [1, 2]})
                fresh = await client.until("READY")
                assert fresh["session_id"] != ready["session_id"]
            async with Plain(discord.url) as client:
                await client.resume(fresh, 1)
                await client.until("RESUMED")
                assert discord.windows == {}

    run(scene())


def test_a_sequence_from_the_future_ends_the_session() -> None:
    async def scene() -> None:
        async with gateway() as discord:
            async with Plain(discord.url) as client:
                ready = await client.ready()
            async with Plain(discord.url) as client:
                await client.resume(ready, 99)
                assert await client.code() == 4007
            assert ready["session_id"] not in discord.sessions.by_name

    run(scene())


def test_a_sequence_that_is_too_old_or_another_dialect_cannot_be_replayed() -> None:
    async def scene() -> None:
        async with gateway(guilds=4, replays=2) as discord:
            async with Plain(discord.url) as client:
                ready = await client.ready()
            async with Plain(discord.url, PACKED) as client:
                await client.resume(ready, 5)
                assert await client.op(9) is False
            async with Plain(discord.url) as client:
                await client.resume(ready, 2)
                assert await client.op(9) is False

    run(scene())


def test_what_a_heartbeat_acknowledged_may_be_forgotten() -> None:
    async def scene() -> None:
        async with gateway(guilds=2, forgets_beaten=True) as discord:
            async with Plain(discord.url) as client:
                ready = await client.ready()
                await client.send(1, 2)
                while (await client.next())["op"] != 11:
                    pass
            async with Plain(discord.url) as client:
                await client.resume(ready, 1)
                assert await client.op(9) is False

    run(scene())


def test_a_heartbeat_from_the_future_is_written_down() -> None:
    async def scene() -> None:
        async with gateway(guilds=0) as discord, Plain(discord.url) as client:
            await client.ready()
            await client.send(1, 7)
            await client.op(11)
            assert [entry.kind for entry in discord.book.of("breach")] == ["breach"]

    run(scene())


@pytest.mark.parametrize("twin", ["takes", "refused"])
def test_a_second_connection_takes_the_session_or_is_refused(twin: str) -> None:
    async def scene() -> None:
        async with gateway(guilds=1, twin=twin) as discord, Plain(discord.url) as old, Plain(discord.url) as new:
            (guild,) = discord.guilds.ids
            ready = await old.ready()
            await old.until("GUILD_CREATE")
            await new.resume(ready, old.sequence)
            if twin == "takes":
                assert await old.code() == 4000
                assert (await new.next())["t"] == "RESUMED"
            else:
                assert await new.op(9) is True
            discord.say(guild, "MESSAGE_CREATE", {"id": "1"})
            assert (await (new if twin == "takes" else old).next())["d"]["id"] == "1"

    run(scene())


def test_every_session_of_every_total_has_a_copy_of_its_own() -> None:
    async def scene() -> None:
        async with gateway(guilds=12, identify_every_s=0.0) as discord:
            guild = guilds_of(discord, 2, 3)[0]
            shards = [(2, 3), (2, 3), ((guild >> 22) % 4, 4), (0, 3), (0, 4)]
            clients = [Plain(discord.url) for _ in shards]
            for client, shard in zip(clients, shards, strict=True):
                await client.__aenter__()
                await client.ready(*shard)
                for _ in guilds_of(discord, *shard):
                    await client.until("GUILD_CREATE")
            discord.say(guild, "MESSAGE_CREATE", {"id": "1"})
            discord.say(0, "MESSAGE_CREATE", {"id": "2"})
            heard = [[(await client.next())["d"]["id"]] for client in clients]
            routed = [((guild >> 22) % total == shard, shard == 0) for shard, total in shards]
            assert heard == [["1"] if in_guild else ["2"] for in_guild, _ in routed]
            for client in clients:
                await client.__aexit__(None, None, None)

    run(scene())


def test_an_event_needs_its_intent() -> None:
    async def scene() -> None:
        async with gateway(guilds=1, privileged=1 << 8) as discord, Plain(discord.url) as client:
            (guild,) = discord.guilds.ids
            await client.ready()
            await client.until("GUILD_CREATE")
            for name in ("PRESENCE_UPDATE", "MESSAGE_CREATE", "VOICE_STATE_UPDATE", "INTERACTION_CREATE"):
                discord.say(guild, name, {"id": "1"})
            assert [(await client.next())["t"] for _ in range(2)] == ["MESSAGE_CREATE", "INTERACTION_CREATE"]
            assert [told.heard for told in discord.book.told] == [False, True, False, True]

    run(scene())


def test_a_new_session_may_be_told_of_an_outage() -> None:
    async def scene() -> None:
        async with gateway(guilds=2, tells_outages=True) as discord, Plain(discord.url) as client:
            first, second = discord.guilds.ids
            discord.begin_outage(first)
            await client.ready()
            assert (await client.next())["d"] == {"id": str(first), "unavailable": True}
            assert (await client.next())["d"]["id"] == str(second)
            discord.end_outage(first)
            assert (await client.next())["t"] == "GUILD_CREATE"

    run(scene())


def test_guilds_come_go_and_have_outages() -> None:
    async def scene() -> None:
        async with gateway(guilds=2) as discord, Plain(discord.url) as client:
            first, second = discord.guilds.ids
            discord.begin_outage(second)
            ready = await client.ready()
            assert len(ready["guilds"]) == 2
            assert (await client.until("GUILD_CREATE"))["id"] == str(first)
            assert discord.say(second, "MESSAGE_CREATE", {"id": "1"}) == 0
            discord.end_outage(second)
            assert (await client.next())["d"]["id"] == str(second)
            discord.begin_outage(first)
            assert (await client.next())["d"] == {"id": str(first), "unavailable": True}
            discord.join(second + 9)
            assert (await client.next())["d"]["id"] == str(second + 9)
            discord.leave(second)
            assert (await client.next())["d"] == {"id": str(second)}
            with pytest.raises(ValueError, match=str(second)):
                discord.say(second, "MESSAGE_CREATE", {"id": "1"})

    run(scene())
