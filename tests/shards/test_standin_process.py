"""The stand-in as a process of its own, told what to do over its control interface."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from app.local.discord.book import mark
from app.local.discord.checker import Heard, weigh
from app.local.discord.remote import Remote, start
from app.local.waiting import wait_until
from tests.shards.plain import INTENTS, Plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from app.local.guard import Guard


@pytest.fixture
def discord(guard: Guard, tmp_path: Path) -> Iterator[Remote]:
    """Four shards, eight guilds."""
    remote = start(guard, tmp_path, shards=4, concurrency=4, guilds=8, token="a.secret-token")  # noqa: S106 - of no bot
    yield remote
    assert remote.process is not None
    guard.end(remote.process)


def test_a_process_is_driven_from_outside(discord: Remote) -> None:
    async def api() -> dict[str, object]:
        headers = {"Authorization": f"Bot {discord.token}", "User-Agent": "DiscordBot (test, 1)"}
        async with aiohttp.ClientSession() as http, http.get(f"{discord.api_url}/gateway/bot", headers=headers) as got:
            return await got.json()

    async def scene() -> list[Heard]:
        told = await asyncio.to_thread(api_answer)
        assert (told["url"], told["shards"]) == (discord.url, 4)
        guild = discord.guilds()[0]
        heard: list[Heard] = []
        async with Plain(discord.url) as client:
            await client.ready()
            for _ in range(8):
                await client.until("GUILD_CREATE")
            assert discord.say(guild, "MESSAGE_CREATE", {"id": "1"}) == 1
            discord.load(500.0, direct=0.1)
            await asyncio.to_thread(wait_until, lambda: discord.look()["said"] >= 50)
            said = discord.load(0)
            assert said == len(discord.told()) - 1
            while len(heard) < sum(event.heard for event in discord.told()):
                payload = await client.next()
                heard.append(Heard(mark(payload["t"], payload["d"]), payload["t"]))
            assert discord.act(do="reconnect") == 1
            await client.op(7)
        return heard

    def api_answer() -> dict[str, object]:
        return asyncio.run(api())

    heard = asyncio.run(asyncio.wait_for(scene(), 20.0))
    assert weigh(discord.told(), heard).broken == []
    wait_until(lambda: {"ready", "settled", "reconnect", "closed"} <= {entry.kind for entry in discord.entries()})
    (identify,) = [entry for entry in discord.entries() if entry.kind == "identify"]
    assert (identify.shard, identify.total, identify.bucket) == (0, 1, 0)
    assert discord.look()["remaining"] == 999
    assert [session["connected"] for session in discord.look()["sessions"]] == [False]


def test_what_is_told_wrongly_is_refused_and_what_is_told_holds(discord: Remote) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("explode", {}),
        ("_set", {}),
        ("say", {"guild": 5, "name": "X", "data": {}}),
        ("say", {"what": 5}),
        ("script", {"do": "explode"}),
        ("door", {"name": "back", "state": "open"}),
        ("terms", {"speed": 5}),
        ("terms", {"sends": "many"}),
        ("bot", {"token": "x"}),
        ("guild", {"guild": 5, "do": "begin_outage"}),
    ]
    for operation, arguments in wrong:
        with pytest.raises(ValueError, match=operation):
            discord.call(operation, **arguments)
    discord.terms(heartbeat_s=9, twin="refused")
    discord.script(do="close", code=4008, at="identify")
    discord.bot(shards=6, remaining=1)
    discord.door("resume", "refuses")

    async def scene() -> None:
        async with Plain(discord.url) as client:
            assert (await client.op(10))["heartbeat_interval"] == 9000
            await client.send(2, {"token": discord.token, "intents": INTENTS, "properties": {}})
            assert await client.code() == 4008
        with pytest.raises(ConnectionRefusedError):
            await Plain(discord.look()["resume_url"]).__aenter__()

    asyncio.run(asyncio.wait_for(scene(), 20.0))
    assert discord.look()["remaining"] == 0
    assert discord.call("unscript") == 0
    assert discord.process is not None
    discord.process.send(signal.SIGTERM)
    assert discord.process.wait(10.0) == 0, discord.process.read_log()
