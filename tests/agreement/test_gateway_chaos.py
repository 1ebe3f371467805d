"""Connections under a load of events, at a Discord that does everything it may, in an order that is drawn.

Each seed is another story; one that fails is printed. Whatever happens short of the end of a session, no event is lost,
doubled or out of its guild's order, and there is no second IDENTIFY.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, get_args

import pytest

from app.local.discord.book import mark
from app.local.discord.bot import Bot
from app.local.discord.checker import Heard as Report
from app.local.discord.checker import weigh
from app.local.discord.doors import DoorState
from app.local.discord.gateway import Gateway
from app.local.discord.load import Load
from app.local.discord.script import At, Do, Fault
from app.local.discord.terms import Terms
from tasks.shards.gateway import connection, life
from tests.shards import listening
from tests.shards.listening import QUICK, TOKEN, Heard, until

if TYPE_CHECKING:
    from tasks.shards.gateway.session import Event, Session

SHARDS, EVERY_S, STORY_S = 6, 0.06, 6.0
LIVING: tuple[Do, ...] = tuple(do for do in get_args(Do) if do != "status")
UNCONNECTED: tuple[Do, ...] = ("reset", "silence", "status")
STAGES: tuple[At, ...] = ("resume", "hello")
RESUMABLE = (1000, 1001, 1011, 4000, 4001, 4002, 4003, 4005, 4008)
INTENTS = 1 | 1 << 7 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 14
NUMBERS = QUICK._replace(unanswered=10**6, breaker_closes=10**6)
"""A session is never given up: each loss is a fault."""


async def story(seed: int, *, patience_s: float = 10.0, forgets_beaten: bool = True) -> Gateway:
    """Play it; AssertionError with what the checker says. `patience_s`: for what was told last."""
    chance = random.Random(seed)
    terms = Terms(heartbeat_s=0.5, beat_patience=6.0, identify_every_s=0.0, lag_s=0.1, sends=10**6)
    terms.forgets_beaten = forgets_beaten
    reports: list[Report] = []
    async with Gateway(Bot(TOKEN, concurrency=SHARDS), guilds=40, terms=terms) as discord:
        held = [_hold(discord, shard, reports) for shard in range(SHARDS)]
        for each in held:
            await each.settled()
        load = Load(discord, 300.0, seed=seed)
        async with load:
            end_s = time.monotonic() + STORY_S
            while time.monotonic() < end_s:
                await asyncio.sleep(chance.random() * 2 * EVERY_S)
                await _mischief(discord, chance)
        discord.script.faults.clear()
        await discord.resume_door.set("open")
        terms.lag_s = 0.0
        wanted = {event.mark for event in discord.book.told if event.heard}
        lost = ""
        try:
            await until(lambda: wanted <= {report.mark for report in reports}, within_s=patience_s)
        except AssertionError:
            lost = f" (also: {[each.describe() for each in held]})"
        verdict = weigh(discord.book.told, reports)
        assert verdict.broken == [], f"seed {seed}: {verdict.broken}{lost}"
        assert verdict.told > 1000
        assert set(verdict.unknown) <= {"GUILD_CREATE"}
        for each in held:
            await each.connection.close(4000)
    return discord


def _hold(discord: Gateway, shard: int, reports: list[Report]) -> Heard:
    held = Heard(discord, shard=shard, total=SHARDS, numbers=NUMBERS)

    def hear(event: Event) -> None:
        held.ear.confirmed = event.sequence
        reports.append(Report(mark(event.name, dict(event.data)), event.name, time.monotonic()))

    held.ear.on_heard = hear
    return held


async def _mischief(discord: Gateway, chance: random.Random) -> None:
    shard, code = chance.randrange(SHARDS), chance.choice(RESUMABLE)
    discord.act(Fault(do=chance.choice(LIVING), shard=shard, code=code, resumable=True))
    if chance.random() < 0.3:
        discord.script.add(Fault(do=chance.choice(LIVING), at=chance.choice(STAGES), code=code, resumable=True))
    if chance.random() < 0.1:
        discord.script.add(Fault(do=chance.choice(UNCONNECTED), at="connect", code=503))
    if chance.random() < 0.05:
        await discord.resume_door.set(chance.choice(get_args(DoorState)))


def play(seed: int, **options: Any) -> Gateway:
    """A story in a loop of its own."""
    return asyncio.run(asyncio.wait_for(story(seed, **options), 60.0))


@pytest.fixture(autouse=True)
def _intents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "INTENTS", INTENTS)


@pytest.mark.parametrize("number", range(4))
def test_nothing_is_lost_whatever_discord_does(number: int) -> None:
    discord = play(random.randrange(1_000_000) * 4 + number)
    assert len(discord.book.of("identify")) == SHARDS
    assert len(discord.book.of("resumed")) > SHARDS
    assert discord.book.of("over", "breach") == []


def _too_early(token: str, session: Session) -> dict[str, Any]:
    return {"token": token, "session_id": session.id, "seq": max(1, session.sequence - 1)}


@pytest.mark.parametrize("wrong", ["closes with 1000", "resumes too early"])
def test_a_connection_that_does_it_wrong_is_noticed(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if wrong == "closes with 1000":
        monkeypatch.setattr(connection, "HAND_OVER", 1000)
    else:
        monkeypatch.setattr(life, "resume", _too_early)
    found = "lost" if wrong == "closes with 1000" else "doubled"
    with pytest.raises(AssertionError, match=rf"[1-9]\d* {found}"):
        play(1, patience_s=2.0, forgets_beaten=False)
