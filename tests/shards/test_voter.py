"""Rounds become votes: with a real connection to a Discord that is as strict as the real one."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from app.local.discord.bot import Bot
from app.local.discord.rest import RestStandIn, Scripted
from tasks.shards.rest import Rest
from tasks.shards.rounds import Numbers, VoteRounds
from tasks.shards.vocabulary import Told
from tasks.shards.voter import vote

if TYPE_CHECKING:
    import pytest


async def votes(discord: RestStandIn, wanted: int, token: str) -> list[Told]:
    """Vote until so many were told, or until voting ends by itself."""
    told: list[Told] = []
    enough = asyncio.Event()

    def tell(one: Told) -> None:
        told.append(one)
        if len(told) >= wanted:
            enough.set()

    async with Rest(discord.url, token, within_s=0.2, first_wait_s=1.0) as rest:
        voting = asyncio.create_task(vote(VoteRounds(Numbers(every_s=0.02)), rest, tell))
        stop = asyncio.create_task(enough.wait())
        await asyncio.wait({voting, stop}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        for task in (voting, stop):
            task.cancel()
        await asyncio.gather(voting, stop, return_exceptions=True)
    return told


def test_each_round_tells_what_discord_said_and_a_failed_one_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tasks.shards.voter")
    with RestStandIn(Bot(shards=5, total=1000, concurrency=1)) as discord:
        discord.script.extend([Scripted(), Scripted(500), Scripted(403)])
        told = asyncio.run(votes(discord, 3, discord.bot.token))
    assert told == [Told(5, 1, 1000, 1000, 0)] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_token_that_is_not_known_ends_the_votes_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with RestStandIn(Bot()) as discord:
        assert asyncio.run(votes(discord, 1, "another")) == []
        assert discord.statuses == {401: 1}
    (record,) = caplog.records
    assert "the token in DISCORD_TOKEN is not valid; this pod votes no more" in record.getMessage()
