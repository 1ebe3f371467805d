"""The checker tells lost, doubled and disordered apart, knows equal events, and measures who served whom when."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from app.local.discord.book import Book, Entry, mark
from app.local.discord.checker import Heard, ended_s, figures, gaps, share, spacing, spells, unserved, weigh
from app.local.discord.load import Load
from app.local.discord.script import Fault
from app.local.discord.talk import Talk
from tests.shards.plain import Plain, gateway, until

if TYPE_CHECKING:
    from app.local.discord.gateway import Gateway

A, B = 1 << 22, 2 << 22
MANY = 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 14 | 1 << 7 | 1


def book(*told: tuple[int, str]) -> Book:
    """Events by guild and content."""
    written = Book()
    for guild, content in told:
        written.tell(guild, "MESSAGE_CREATE", {"content": content})
    return written


def heard(*contents: str) -> list[Heard]:
    """Reports, in this order."""
    return [Heard(mark("MESSAGE_CREATE", {"content": content}), "MESSAGE_CREATE") for content in contents]


def test_a_mark_knows_all_of_an_event_and_no_order_of_keys() -> None:
    assert mark("A", {"x": 1, "y": {"a": 1, "b": 2}}) == mark("A", {"y": {"b": 2, "a": 1}, "x": 1})
    assert len({mark("A", {"x": 1}), mark("B", {"x": 1}), mark("A", {"x": "1"}), mark("A", {"x": None})}) == 4


@pytest.mark.parametrize(
    ("told", "reports", "found"),
    [
        ("a1 a2 b3", "b3 a1 a2", (0, 0, 0, 0)),
        ("a1 a2", "a1", (1, 0, 0, 0)),
        ("a1 a2", "a1 a2 a1", (0, 1, 0, 0)),
        ("a1 a2", "a2 a1", (0, 0, 1, 0)),
        ("a1 b2", "b2 a1", (0, 0, 0, 0)),
        ("a1 a1", "a1 a1", (0, 0, 0, 0)),
        ("a1 a1", "a1", (1, 0, 0, 0)),
        ("a1 a1", "a1 a1 a1", (0, 1, 0, 0)),
        ("a1 a2 a1", "a1 a2 a1", (0, 0, 0, 0)),
        ("a1 a2 a1", "a2 a1", (1, 0, 0, 0)),
        ("a1 a2 a1", "a1 a1 a2", (0, 0, 1, 0)),
        ("a1 a2 a1 a2", "a1 a2 a1 a2", (0, 0, 0, 0)),
        ("a1", "x9 a1 x9", (0, 0, 0, 2)),
        ("", "", (0, 0, 0, 0)),
    ],
)
def test_lost_doubled_out_of_order_unknown(told: str, reports: str, found: tuple[int, ...]) -> None:
    written = book(*(({"a": A, "b": B}[event[0]], event) for event in told.split()))
    verdict = weigh(written.told, heard(*reports.split()))
    assert (len(verdict.lost), len(verdict.doubled), len(verdict.disordered), verdict.unknown.total()) == found
    assert bool(verdict.broken) == any(found[:3])
    assert weigh(written.told, heard(*reports.split()), ordered=False).disordered == []


def test_what_nobody_had_the_intent_for_is_not_missed_and_lateness_is_measured() -> None:
    written = book((A, "1"))
    written.tell(A, "PRESENCE_UPDATE", {"x": 1}, heard=False)
    (report,) = heard("1")
    verdict = weigh(written.told, [report._replace(at_s=written.told[0].at_s + 2.0)])
    assert (verdict.told, verdict.heard, verdict.lost) == (1, 1, [])
    assert verdict.late_s == pytest.approx([2.0])


def test_the_talk_has_equal_events_and_each_kind_and_is_the_same_for_a_seed() -> None:
    first, second = ([Talk(7, lambda: 1.8e9).say([A, B], direct=0.1) for _ in range(1)] for _ in range(2))
    assert first == second
    talk = Talk(7, lambda: 1.8e9)
    said = [talk.say([A, B], direct=0.1) for _ in range(2000)]
    marks = Counter(mark(name, data) for _, name, data in said)
    names = Counter(name for _, name, _ in said)
    assert sum(count - 1 for count in marks.values()) > 100
    assert len(names) == 9
    assert {guild for guild, _, _ in said} == {0, A, B}
    equal = Counter(name for _, name, data in said if marks[mark(name, data)] > 1)
    assert set(equal) == {"TYPING_START", "MESSAGE_REACTION_ADD", "MESSAGE_REACTION_REMOVE"}


def entry(at_s: float, kind: str, client: int, session: str, slot: str = "0/1", **more: Any) -> Entry:
    """One of a book."""
    shard, total = map(int, slot.split("/"))
    return Entry(at_s, kind, client, shard, total, session, **more)


STORY = [
    entry(0, "identify", 1, "", bucket=0),
    entry(1, "ready", 1, "s"),
    entry(2, "settled", 1, "s"),
    entry(5, "closed", 1, "s"),
    entry(5, "resume", 2, "s"),
    entry(6, "resumed", 2, "s"),
    entry(6, "identify", 3, "", "1/2", bucket=1),
    entry(7, "ready", 3, "t", "1/2"),
    entry(8, "settled", 3, "t", "1/2"),
    entry(9, "invalid", 2, "s"),
    entry(9, "over", 0, "s"),
    entry(9.5, "identify", 2, "", bucket=0),
    entry(10, "ready", 2, "u"),
    entry(10, "closed", 2, "u"),
    entry(11, "settled", 0, "u"),
    entry(12, "resumed", 4, "u"),
    entry(13, "shut", 4, "u"),
]


def test_who_served_which_shard_when() -> None:
    connected = [(s.session, s.from_s, s.to_s) for s in spells(STORY, 20.0)]
    assert connected == [("s", 2, 5), ("s", 6, 9), ("t", 8, 20), ("u", 12, 13)]
    kept = [(s.session, s.from_s, s.to_s) for s in spells(STORY, 20.0, connected=False)]
    assert kept == [("s", 2, 9), ("t", 8, 20), ("u", 11, 20)]
    assert [(hole.what, hole.from_s, hole.to_s) for hole in gaps(spells(STORY, 20.0))] == [
        ("shard 0/1", 5, 6),
        ("shard 0/1", 9, 12),
    ]
    assert gaps(spells(STORY, 20.0))[1].length_s == 3
    # Guild A is of shard 1/2, B of 0/2, which nobody has.
    holes = [(hole.what, hole.from_s, hole.to_s) for hole in unserved(spells(STORY, 20.0), [A, B], 3.0, 14.0)]
    assert holes == [(f"guild {A}", 5, 6), (f"guild {B}", 5, 6), (f"guild {B}", 9, 12), (f"guild {B}", 13, 14)]
    assert [ended_s(spells(STORY, 20.0), total) for total in (1, 2, 3)] == [13, 20, 0]
    assert spacing(STORY) == {0: 9.5}
    took = figures(STORY, 20.0)
    assert (took["identifies"], took["resumes"], took["resumed"], took["gaps"]) == (3, 1, 2, 2)
    assert (took["gap_ms"], share([1.0, 2.0, 3.0, 4.0], 0.5), share([], 0.5)) == (3000.0, 2.0, 0.0)


class Consumer:
    """One shard's connection by hand that comes back by RESUME, and reports."""

    def __init__(self, discord: Gateway, reports: list[Heard]) -> None:
        """`reports`: of all consumers."""
        self._discord, self._reports = discord, reports

    async def run(self, shard: int, total: int, *, forget: int) -> None:
        """For ever. `forget`: by how many events too early a RESUME begins."""
        sequence, ready = 0, None
        while True:
            async with Plain(self._discord.url, "v=10&encoding=json&compress=zlib-stream") as client:
                if ready is None:
                    await client.identify(shard, total, intents=MANY)
                else:
                    await client.resume(ready, sequence - forget)
                try:
                    while (payload := await client.next())["op"] != 7:
                        if payload["t"] == "READY":
                            ready = payload["d"]
                        elif payload["t"] not in (None, "RESUMED"):
                            at_s = time.monotonic()
                            self._reports.append(Heard(mark(payload["t"], payload["d"]), payload["t"], at_s))
                        sequence = payload["s"] or sequence
                except ConnectionError:
                    continue


@pytest.mark.parametrize("forget", [0, 1])
def test_a_load_through_reconnects_is_heard_once_and_in_order(forget: int) -> None:
    async def scene() -> None:
        reports: list[Heard] = []
        async with gateway(guilds=40) as discord:
            running = [asyncio.create_task(Consumer(discord, reports).run(n, 4, forget=forget)) for n in range(4)]
            await until(lambda: len(discord.book.of("settled")) == 4, "all shards")
            load = Load(discord, 1000.0)
            async with load:
                chance = random.Random(5)
                while load.said < 600 or len(discord.book.of("resumed")) < 6:
                    await asyncio.sleep(0.03)
                    discord.act(Fault(do="reconnect", shard=chance.randrange(4)))
            await until(
                lambda: {event.mark for event in discord.book.told} <= {report.mark for report in reports}, "all"
            )
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            verdict = weigh(discord.book.told, reports)
            assert verdict.told >= 600
            assert verdict.unknown == {"GUILD_CREATE": 40} or forget
            assert bool(verdict.doubled) == bool(forget)
            if not forget:
                assert verdict.broken == []
                assert len(verdict.late_s) == verdict.told

    asyncio.run(asyncio.wait_for(scene(), 20.0))


def test_many_shards_of_two_totals_are_cheap() -> None:
    async def scene() -> None:
        async with gateway(guilds=256, concurrency=64, identify_every_s=0.0) as discord:
            slots = [(shard, total) for total in (64, 48) for shard in range(total)]
            clients = [Plain(discord.url, "v=10&encoding=json&compress=zlib-stream") for _ in slots]
            await asyncio.gather(*(client.__aenter__() for client in clients))
            ready = await asyncio.gather(
                *(client.ready(*slot, intents=MANY) for client, slot in zip(clients, slots, strict=True))
            )
            assert len({answer["session_id"] for answer in ready}) == 112
            assert sum(len(answer["guilds"]) for answer in ready) == 512
            whole = spells(discord.book.entries, time.monotonic())
            settled_s = max(spell.from_s for spell in whole)
            assert unserved(whole, discord.guilds.ids, settled_s, settled_s + 0.001) == []
            await asyncio.gather(*(client.__aexit__(None, None, None) for client in clients))

    asyncio.run(asyncio.wait_for(scene(), 20.0))
