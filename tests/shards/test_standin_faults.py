"""What the stand-in does out of turn, when a test tells it to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import InvalidMessage, InvalidStatus

from app.local.discord.script import Fault
from tests.shards.plain import Plain, gateway

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from app.local.discord.doors import DoorState


def run(scene: Coroutine[Any, Any, None]) -> None:
    """A scene in a loop of its own."""
    asyncio.run(asyncio.wait_for(scene, 20.0))


async def silent(client: Plain, for_s: float = 0.1) -> bool:
    """Whether nothing comes for a while."""
    try:
        await asyncio.wait_for(client.socket.recv(), for_s)
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize(
    "wrong",
    [
        {"do": "explode"},
        {"do": "close", "at": "lunch"},
        {"do": "close", "at": "connect"},
        {"do": "status", "at": "hello"},
        {"do": "reset", "at": "hello", "shard": 1},
    ],
    ids=str,
)
def test_a_fault_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at (ready|lunch|connect|hello)"):
        Fault(**wrong)


def test_before_the_handshake() -> None:
    async def scene() -> None:
        async with gateway() as discord:
            discord.script.add(Fault(do="status", code=503, at="connect"))
            with pytest.raises(InvalidStatus, match="503"):
                await Plain(discord.url).__aenter__()
            discord.script.add(Fault(do="reset", at="connect"))
            with pytest.raises(InvalidMessage):
                await Plain(discord.url).__aenter__()
            discord.script.add(Fault(do="silence", at="connect"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(Plain(discord.url).__aenter__(), 0.1)
            async with Plain(discord.url) as client:
                await client.ready()

    run(scene())


def test_in_place_of_hello() -> None:
    async def scene() -> None:
        async with gateway() as discord:
            for fault in (
                Fault(do="silence", at="hello"),
                Fault(do="reconnect", at="hello"),
                Fault(do="invalid", at="hello"),
                Fault(do="close", at="hello", code=4003),
                Fault(do="reset", at="hello"),
            ):
                discord.script.add(fault)
            async with Plain(discord.url) as client:
                assert await silent(client)
            async with Plain(discord.url) as client:
                await client.op(7)
            async with Plain(discord.url) as client:
                assert await client.op(9) is False
            async with Plain(discord.url) as client:
                assert await client.code() == 4003
            async with Plain(discord.url) as client:
                assert await client.code() == 1006
            assert discord.script.faults == []

    run(scene())


def test_in_place_of_ready_and_of_one_shard_alone() -> None:
    async def scene() -> None:
        async with gateway(identify_every_s=0.0) as discord:
            discord.script.add(Fault(do="close", code=1011, at="identify", shard=3, total=4, times=None))
            discord.script.add(Fault(do="silence", at="identify", shard=2))
            discord.script.add(Fault(do="invalid", at="identify", shard=2))
            for _ in range(3):
                async with Plain(discord.url) as client:
                    await client.identify(3, 4)
                    assert await client.code() == 1011
            async with Plain(discord.url) as client:
                await client.identify(2, 4)
                assert await silent(client)
                await client.send(1, None)
                await client.op(11)
            async with Plain(discord.url) as client:
                await client.identify(2, 4)
                assert await client.op(9) is False
            async with Plain(discord.url) as client, Plain(discord.url) as other:
                await client.ready(3, 5)
                await other.ready(2, 4)
            assert discord.bot.remaining == 993

    run(scene())


def test_in_place_of_resumed() -> None:
    async def scene() -> None:
        async with gateway(guilds=1) as discord:
            async with Plain(discord.url) as client:
                ready = await client.ready()
            for fault in (
                Fault(do="reset", at="resume", shard=0, times=2),
                Fault(do="reconnect", at="resume"),
                Fault(do="invalid", resumable=True, at="resume"),
                Fault(do="silence", at="resume", door="resume"),
            ):
                discord.script.add(fault)
            for _ in range(2):
                async with Plain(discord.url) as client:
                    await client.resume(ready, 2)
                    assert await client.code() == 1006
            async with Plain(discord.url) as client:
                await client.resume(ready, 2)
                await client.op(7)
            async with Plain(discord.url) as client:
                await client.resume(ready, 2)
                assert await client.op(9) is True
            async with Plain(ready["resume_gateway_url"]) as client:
                await client.resume(ready, 2)
                assert await silent(client)
            async with Plain(discord.url) as client:
                await client.resume(ready, 2)
                await client.until("RESUMED")
            discord.script.add(Fault(do="close", code=4009, at="resume"))
            async with Plain(discord.url) as client:
                await client.resume(ready, 2)
                assert await client.code() == 4009
            async with Plain(discord.url) as client:
                await client.resume(ready, 2)
                assert await client.op(9) is False

    run(scene())


def test_at_any_time_to_those_it_fits() -> None:
    async def scene() -> None:
        async with gateway(guilds=0, reconnect_grace_s=0.1) as discord:
            async with Plain(discord.url) as first, Plain(discord.url) as second, Plain(discord.url) as third:
                readies = [await client.ready(shard, 3) for shard, client in enumerate((first, second, third))]
                assert discord.act(Fault(do="reconnect", shard=0)) == 1
                await first.op(7)
                assert await first.code() == 4000
                assert discord.act(Fault(do="invalid", resumable=True, shard=1)) == 1
                assert await second.op(9) is True
                await second.send(
                    6, {"token": "a.secret-token", "session_id": readies[1]["session_id"], "seq": second.sequence}
                )
                await second.until("RESUMED")
                assert discord.act(Fault(do="beat")) == 2
                await third.op(1)
                await third.send(1, third.sequence)
                await third.op(11)
                assert [entry.shard for entry in discord.book.of("answered")] == [2]
                assert discord.act(Fault(do="deaf", shard=2)) == 1
                await third.send(1, third.sequence)
                discord.say(0, "INTERACTION_CREATE", {"id": "1"})
                assert await silent(third)
                assert discord.act(Fault(do="invalid", shard=1, total=4)) == 0
                assert discord.act(Fault(do="close", code=4009, shard=2)) == 1
                assert await third.code() == 4009
            assert readies[0]["session_id"] in discord.sessions.by_name
            assert readies[2]["session_id"] not in discord.sessions.by_name

    run(scene())


def test_a_zombie_says_nothing_and_its_session_hears_on() -> None:
    async def scene() -> None:
        async with gateway(guilds=1) as discord:
            (guild,) = discord.guilds.ids
            discord.script.add(Fault(do="silence", at="ready", shard=0))
            async with Plain(discord.url) as client:
                ready = await client.ready()
                await client.until("GUILD_CREATE")
                await client.send(1, client.sequence)
                discord.say(guild, "MESSAGE_CREATE", {"id": "1"})
                assert await silent(client)
            async with Plain(discord.url) as client:
                await client.resume(ready, 2)
                assert (await client.next())["d"]["id"] == "1"

    run(scene())


def test_garbage_and_a_fault_that_takes_its_time() -> None:
    async def scene() -> None:
        async with gateway(guilds=0) as discord, Plain(discord.url) as client, Plain(discord.url) as other:
            discord.script.add(Fault(do="garble", at="ready"))
            await client.ready()
            assert await client.socket.recv() == "{"
            discord.script.add(Fault(do="close", code=4008, at="ready", after_s=0.05))
            await other.ready(1, 2)
            discord.say(0, "INTERACTION_CREATE", {"id": "1"})
            assert await other.code() == 4008

    run(scene())


def test_a_door_refuses_hangs_resets_and_opens_again() -> None:
    async def scene() -> None:
        async with gateway(guilds=0) as discord:
            async with Plain(discord.url) as client:
                ready = await client.ready()
                url = ready["resume_gateway_url"]
                states: list[tuple[DoorState, type[Exception], float]] = [
                    ("refuses", ConnectionRefusedError, 5.0),
                    ("resets", InvalidMessage, 5.0),
                    ("hangs", TimeoutError, 0.2),
                ]
                for state, error, patience_s in states:
                    await discord.resume_door.set(state)
                    with pytest.raises(error):
                        await asyncio.wait_for(Plain(url).__aenter__(), patience_s)
                discord.say(0, "INTERACTION_CREATE", {"id": "1"})
                await client.until("INTERACTION_CREATE")
            await discord.resume_door.set("open")
            async with Plain(url) as client:
                await client.resume(ready, 2)
                await client.until("RESUMED")

    run(scene())
