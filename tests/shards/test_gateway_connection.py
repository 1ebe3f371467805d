"""One shard against a Discord as strict as the real one: opening, resuming, closing; and what public reports tell."""

from __future__ import annotations

import asyncio
import logging
import time
from math import inf
from typing import TYPE_CHECKING, Any, cast

import pytest
from websockets.http11 import Request
from websockets.server import ServerProtocol

from app.local.discord.bot import Bot
from app.local.discord.gateway import Gateway
from app.local.discord.script import Fault
from app.local.discord.terms import Terms
from tasks.shards.gateway.beats import Beats
from tasks.shards.gateway.session import Session
from tests.shards.listening import QUICK, TOKEN, Heard, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tasks.shards.gateway.session import Event

    Scene = Callable[[Gateway], Awaitable[None]]

BEAT_S = 0.1


def play(scene: Scene, *, guilds: int = 3, shards: int = 1, concurrency: int = 1, **terms: Any) -> None:
    """A scene with a Discord; it must leave no task behind."""
    terms = {"identify_every_s": 0.0, "heartbeat_s": 5.0, **terms}

    async def run() -> None:
        bot = Bot(TOKEN, shards=shards, concurrency=concurrency)
        async with Gateway(bot, guilds=guilds, terms=Terms(**terms)) as gateway:
            await scene(gateway)
            assert ours() == [], "a task is left behind"

    asyncio.run(run())


def ours() -> list[str]:
    """The tasks of connections that are under way."""
    found = [cast("Any", task.get_coro()) for task in asyncio.all_tasks()]
    return [repr(each) for each in found if "/tasks/shards/" in each.cr_code.co_filename]


def type_in(gateway: Gateway, *users: str) -> None:
    """Somebody types in the first guild."""
    guild = next(iter(gateway.guilds.ids))
    for user in users:
        gateway.say(guild, "TYPING_START", {"channel_id": "1", "user_id": user, "timestamp": 1})


def codes(gateway: Gateway) -> list[int]:
    """With which codes the clients closed."""
    return [entry.code for entry in gateway.book.of("closed")]


# ---------------------------------------------------------------- opening


def test_a_new_shard_identifies_and_settles_when_all_its_guilds_have_come() -> None:
    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        assert set(heard.ear.guilds) == set(gateway.guilds.ids)
        assert [event.name for event in heard.ear.events] == ["GUILD_CREATE"] * 3
        assert [event.sequence for event in heard.ear.events] == [2, 3, 4]
        assert heard.connection.state == "settled"
        type_in(gateway, "ann", "bob")
        await until(lambda: heard.ear.typed() == ["ann", "bob"], heard.describe)
        session = heard.connection.session
        assert session is not None
        assert (session.sequence, session.resume_url) == (6, gateway.resume_door.url)
        assert heard.ear.turns == 0, "the turn is over when IDENTIFY was sent"
        await heard.connection.close(1000)
        assert codes(gateway) == [1000]
        assert gateway.book.counts["identify"] == 1

    play(scene)


@pytest.mark.parametrize("compression", ["zlib", "none"])
def test_it_speaks_with_and_without_compression(compression: str) -> None:
    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway, compression=compression).settled()
        gateway.act(Fault(do="reconnect"))
        await heard.settled(2)
        await heard.connection.close(4000)
        assert gateway.book.counts["resumed"] == 1

    play(scene)


def test_it_asks_the_gate_between_hello_and_identify_and_beats_meanwhile() -> None:
    async def scene(gateway: Gateway) -> None:
        heard, opened = Heard(gateway), asyncio.Event()

        async def gate() -> bool:
            await opened.wait()
            return True

        heard.ear.gate = gate
        heard.connection.start()
        await until(lambda: gateway.book.beats >= 5, heard.describe)
        assert gateway.book.counts["identify"] == 0
        assert (heard.connection.state, heard.ear.turns) == ("identifying", 1)
        opened.set()
        await heard.settled()
        await heard.connection.close(4000)

    play(scene, heartbeat_s=BEAT_S)


def test_a_shard_that_the_gate_gives_to_nobody_ends_without_an_identify() -> None:
    async def scene(gateway: Gateway) -> None:
        heard = Heard(gateway)

        async def gate() -> bool:
            return False

        heard.ear.gate = gate
        heard.connection.start()
        await until(lambda: heard.ear.end, heard.describe)
        assert heard.ear.end == ("the shard is another pod's", False, 0)
        assert gateway.book.counts["identify"] == 0

    play(scene)


def test_a_socket_that_is_dropped_at_the_gate_is_opened_again_and_costs_nothing() -> None:
    """kordlib/kord#625: all sockets are opened at once, wait, and are reset before their turn."""

    async def scene(gateway: Gateway) -> None:
        heard = Heard(gateway, numbers=QUICK._replace(stood_s=0.05))
        tries = 0

        async def gate() -> bool:
            nonlocal tries
            tries += 1
            await asyncio.sleep(10 if tries < 7 else 0)
            return True

        heard.ear.gate = gate
        await heard.settled()
        assert (tries, heard.ear.counts["turn"], gateway.book.counts["identify"]) == (7, 7, 1)
        assert max(heard.ear.waits) <= QUICK.again_s, "no pause, no longer wait"
        await heard.connection.close(4000)

    play(scene, unidentified_s=0.1)


def test_a_guild_in_an_outage_keeps_no_shard_from_settling() -> None:
    """discordjs/discord.js#3956: a shard with unavailable guilds is never ready."""

    async def scene(gateway: Gateway) -> None:
        gateway.begin_outage(next(iter(gateway.guilds.ids)))
        heard = await Heard(gateway).settled()
        assert len(heard.ear.events) == 2
        await heard.connection.close(4000)

    play(scene)


def test_a_socket_that_is_lost_before_all_guilds_came_settles_after_its_resume() -> None:
    async def scene(gateway: Gateway) -> None:
        heard = Heard(gateway, numbers=QUICK._replace(settled_s=5.0))
        heard.connection.start()
        await until(lambda: len(heard.ear.events) == 5, heard.describe)
        gateway.act(Fault(do="reset"))
        await until(lambda: gateway.book.counts["resumed"], heard.describe)
        assert heard.ear.counts["settled"] == 0
        await heard.settled()
        assert len(heard.ear.events) == 30
        assert gateway.book.counts["identify"] == 1
        await heard.connection.close(4000)

    play(scene, guilds=30, trickle_s=0.01)


# ---------------------------------------------------------------- resuming


def test_what_another_pod_left_is_resumed_without_identify_and_gate() -> None:
    """discordjs/discord.js#9548: a start by RESUME never resolves, for it waits for READY."""

    async def scene(gateway: Gateway) -> None:
        first = await Heard(gateway).settled()
        type_in(gateway, "ann")
        await until(first.ear.typed, first.describe)
        await first.connection.close(4000)
        type_in(gateway, "bob", "eve")
        second = await Heard(gateway, session=first.connection.session).settled()
        await until(lambda: second.ear.typed() == ["bob", "eve"], second.describe)
        assert (second.ear.counts["asked"], second.ear.counts["turn"], second.ear.sessions) == (0, 0, [])
        assert gateway.book.counts["identify"] == 1
        assert codes(gateway) == [4000]
        await second.connection.close(4000)

    play(scene)


def test_it_resumes_from_what_was_handed_on_and_hears_the_rest_again() -> None:
    async def scene(gateway: Gateway) -> None:
        first = await Heard(gateway).settled()
        type_in(gateway, "ann", "bob", "eve")
        await until(lambda: len(first.ear.typed()) == 3, first.describe)
        session = first.connection.session
        assert session is not None
        await first.connection.close(4000)
        second = await Heard(gateway, session=session._replace(sequence=session.sequence - 2)).settled()
        assert second.ear.typed() == ["bob", "eve"]
        await second.connection.close(4000)

    play(scene)


def test_no_socket_is_opened_for_a_session_before_it_may_be_resumed() -> None:
    """A pod that stood still finds its sockets closed: the sessions may be another pod's."""

    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        heard.ear.resumes = asyncio.Event()
        gateway.act(Fault(do="reset"))
        type_in(gateway, "ann")
        await until(lambda: heard.ear.counts["may resume"], heard.describe)
        await asyncio.sleep(0.1)
        assert gateway.book.counts["connect"] == 1
        heard.ear.resumes.set()
        await heard.settled(2)
        assert heard.ear.typed() == ["ann"]
        await heard.connection.close(4000)

    play(scene)


def test_beats_confirm_only_what_was_handed_on() -> None:
    """If Discord forgets what a beat confirms, a successor still gets what its predecessor heard and lost."""

    async def scene(gateway: Gateway) -> None:
        first = await Heard(gateway).settled()
        first.ear.confirmed = 4
        type_in(gateway, "ann")
        await until(first.ear.typed, first.describe)
        beats = gateway.book.beats
        await until(lambda: gateway.book.beats >= beats + 2, first.describe)
        session = first.connection.session
        assert session is not None
        await first.connection.close(4000)
        second = await Heard(gateway, session=session._replace(sequence=4)).settled()
        assert second.ear.typed() == ["ann"]
        await second.connection.close(4000)

    play(scene, heartbeat_s=BEAT_S, forgets_beaten=True)


def test_op_7_is_followed_by_a_resume_that_misses_nothing() -> None:
    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        for count in range(3):
            gateway.act(Fault(do="reconnect"))
            type_in(gateway, f"user {count}")
            await heard.settled(count + 2)
        assert heard.ear.typed() == ["user 0", "user 1", "user 2"]
        assert set(codes(gateway)) == {4000}
        assert gateway.book.counts["identify"] == 1
        await heard.connection.close(4000)

    play(scene)


def test_op_7_in_place_of_hello_is_another_try() -> None:
    async def scene(gateway: Gateway) -> None:
        gateway.script.add(Fault(do="reconnect", at="hello", times=2))
        heard = await Heard(gateway).settled()
        assert heard.ear.whys == ["Discord asked for another connection"] * 2
        await heard.connection.close(4000)

    play(scene)


def test_op_9_true_is_a_resume_and_op_9_false_a_new_session() -> None:
    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        gateway.act(Fault(do="invalid", resumable=True))
        await heard.settled(2)
        assert (gateway.book.counts["identify"], heard.ear.counts["dropped"]) == (1, 0)
        gateway.act(Fault(do="invalid", resumable=False))
        await heard.settled(3)
        assert (gateway.book.counts["identify"], heard.ear.counts["dropped"]) == (2, 1)
        assert heard.ear.sessions[0].id != heard.ear.sessions[1].id
        await heard.connection.close(4000)

    play(scene)


def test_a_session_that_discord_does_not_know_becomes_one_new_one() -> None:
    """discordjs/discord.js#7113: op 9 false leaves a ghost shard, or identifies twice and loops."""

    async def scene(gateway: Gateway) -> None:
        first = await Heard(gateway).settled()
        session = first.connection.session
        await first.connection.close(1000)
        second = await Heard(gateway, session=session).settled()
        await asyncio.sleep(0.1)
        assert second.ear.counts["dropped"] == 1
        assert (gateway.book.counts["identify"], gateway.book.counts["resume"]) == (2, 1)
        assert second.ear.counts["settled"] == 1
        await second.connection.close(4000)

    play(scene)


def test_an_identify_that_is_too_soon_goes_through_the_gate_again() -> None:
    """discord/discord-api-docs#1328, twilight-rs/twilight#259: the second one gets an op 9."""

    async def scene(gateway: Gateway) -> None:
        first = await Heard(gateway, shard=0, total=2).settled()
        second = await Heard(gateway, shard=1, total=2).settled()
        assert gateway.book.counts["refused"] >= 1
        assert second.ear.counts["asked"] == gateway.book.counts["identify"] - 1
        for heard in (first, second):
            await heard.connection.close(4000)

    play(scene, shards=2, identify_every_s=0.15)


def test_a_resume_url_that_is_dead_gives_way_to_the_main_one() -> None:
    """tatsuworks/gateway#87: 41 shards stuck on a dead resume URL."""

    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        for count, state in enumerate(("refuses", "hangs", "resets")):
            await gateway.resume_door.set(state)
            gateway.act(Fault(do="reset"))
            type_in(gateway, state)
            await heard.settled(count + 2)
        assert heard.ear.typed() == ["refuses", "hangs", "resets"]
        assert (gateway.book.counts["identify"], gateway.book.counts["resumed"]) == (1, 3)
        await heard.connection.close(4000)

    play(scene)


def test_a_main_address_that_is_another_one_now_is_followed() -> None:
    """Who resumed before Discord had answered has only what the session says, for as long as it lives."""

    async def scene(gateway: Gateway) -> None:
        before = Heard(gateway)
        session = (await before.settled()).connection.session
        await before.connection.close(4000)
        await gateway.resume_door.set("refuses")
        assert session is not None
        heard = Heard(gateway, session=session, url=session.resume_url)
        heard.connection.start()
        await until(lambda: heard.ear.counts["lost"] >= 2, heard.describe)
        heard.connection.follow(gateway.url)
        await heard.settled()
        assert (gateway.book.counts["identify"], gateway.book.counts["resumed"]) == (1, 1)
        await heard.connection.close(4000)

    play(scene)


@pytest.mark.parametrize("do", ["reset", "silence", "close"])
def test_a_session_whose_resumes_lead_nowhere_becomes_a_new_one(do: Any) -> None:
    """It is given up when Discord has kept it for long enough."""

    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        gateway.script.add(Fault(do=do, at="resume", code=1011, times=None))
        gateway.act(Fault(do="reconnect"))
        await heard.settled(2)
        assert gateway.book.counts["resume"] >= 3
        assert (gateway.book.counts["identify"], heard.ear.counts["dropped: unanswered"]) == (2, 1)
        (asked,), (_, again) = gateway.book.of("reconnect"), gateway.book.of("identify")
        assert again.at_s - asked.at_s >= QUICK.resumable_s
        await heard.connection.close(4000)

    play(scene)


def test_a_session_whose_resumes_are_reset_for_a_while_is_resumed_at_last() -> None:
    """discord/discord-api-docs#1619: after op 7 every RESUME is reset for 90 s."""

    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway, numbers=QUICK._replace(resumable_s=60.0)).settled()
        gateway.script.add(Fault(do="reset", at="resume", times=8))
        gateway.act(Fault(do="reconnect"))
        await until(lambda: gateway.book.counts["resume"] >= 3, heard.describe)
        type_in(gateway, "ann")
        await heard.settled(2)
        assert (gateway.book.counts["resume"], gateway.book.counts["identify"]) == (9, 1)
        assert (heard.ear.typed(), heard.ear.counts["dropped"]) == (["ann"], 0)
        await heard.connection.close(4000)

    play(scene)


# ---------------------------------------------------------------- deadlines


def test_a_replay_that_takes_longer_than_its_deadline_is_an_answer() -> None:
    """What a session has missed may be much, and the pod busy. Who gave up would begin anew, and lose the session."""

    async def scene(gateway: Gateway) -> None:
        before = await Heard(gateway).settled()
        await before.connection.close(4000)
        users = [f"user {number}" for number in range(8 * 32)]
        type_in(gateway, *users)
        heard = Heard(gateway, session=before.connection.session)

        def slowly(event: Event) -> None:
            time.sleep(2 * QUICK.ready_s / len(users))
            heard.ear.events.append(event)

        heard.ear.on_heard = slowly
        await heard.settled()
        assert heard.ear.whys == []
        assert heard.ear.typed() == users
        assert gateway.book.counts["identify"] == 1
        await heard.connection.close(4000)

    play(scene)


@pytest.mark.parametrize(
    ("at", "missing"), [("connect", "cannot connect"), ("hello", "no HELLO"), ("identify", "no answer to IDENTIFY")]
)
def test_silence_ends_a_socket_whenever_it_comes(at: Any, missing: str) -> None:
    """discordjs/discord.js#8759: stuck on IDENTIFY or RESUME, for there is no deadline."""

    async def scene(gateway: Gateway) -> None:
        gateway.script.add(Fault(do="silence", at=at))
        heard = await Heard(gateway).settled()
        assert [why for why in heard.ear.whys if missing in why] != []
        await heard.connection.close(4000)

    play(scene)


@pytest.mark.parametrize("do", ["deaf", "silence"])
def test_a_zombie_is_closed_with_4000_and_resumed(do: Any) -> None:
    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        gateway.act(Fault(do=do))
        type_in(gateway, "ann")
        await heard.settled(2)
        assert "no answer to a beat" in heard.ear.whys[0]
        assert codes(gateway) == [4000]
        assert heard.ear.typed() == ["ann"]
        await heard.connection.close(4000)

    play(scene, heartbeat_s=BEAT_S)


def test_a_beat_that_discord_asks_for_is_sent_at_once() -> None:
    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway, chance=lambda: 1.0).settled()
        assert gateway.book.beats == 0
        gateway.act(Fault(do="beat"))
        await until(lambda: gateway.book.counts["answered"] == 1, heard.describe)
        await until(lambda: heard.connection.latency_s is not None, heard.describe)
        await heard.connection.close(4000)

    play(scene, heartbeat_s=60.0)


def test_a_beat_is_sent_when_its_maker_wants_one_and_the_answer_is_told_with_its_time() -> None:
    async def scene(gateway: Gateway) -> None:
        heard = Heard(gateway, chance=lambda: 1.0)
        heard.connection.beat()  # there is no socket: nothing happens
        await heard.settled()
        assert (gateway.book.beats, heard.ear.answers) == (0, [])
        from_s = time.monotonic()
        heard.connection.beat()
        await until(lambda: heard.ear.answers, heard.describe)
        assert from_s <= heard.ear.answers[0] <= time.monotonic()
        gateway.act(Fault(do="deaf"))
        heard.connection.beat()
        await until(lambda: gateway.book.beats == 2, heard.describe)
        assert len(heard.ear.answers) == 1
        await heard.connection.close(4000)

    play(scene, heartbeat_s=60.0)


def test_an_answer_that_comes_late_is_that_of_its_own_beat() -> None:
    """So a beat between two regular ones neither hides that nobody answers nor makes a slow answer a missing one."""
    beats = Beats()
    assert (beats.answered(), beats.missed_s(41.0)) == (None, inf)
    beats.sent(10.0)
    beats.sent(50.0)
    assert beats.missed_s(41.0) == 51.0
    assert beats.answered() == 10.0
    assert beats.missed_s(41.0) == 91.0
    assert (beats.answered(), beats.answered(), beats.missed_s(41.0)) == (50.0, None, inf)


def test_many_questions_for_a_beat_are_not_answered_faster_than_discord_allows() -> None:
    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        for _ in range(300):
            gateway.act(Fault(do="beat"))
            await asyncio.sleep(0.001)
        assert heard.ear.counts["lost"] == 0
        assert 60 < gateway.book.beats < 120
        await heard.connection.close(4000)

    play(scene, heartbeat_s=60.0)


def test_beats_have_their_places_however_much_is_sent() -> None:
    async def scene(gateway: Gateway) -> None:
        numbers = QUICK._replace(sends=30, sends_within_s=0.5, sends_kept=10)
        heard = await Heard(gateway, numbers=numbers).settled()

        async def chat() -> None:
            for _ in range(20):
                await heard.connection.send(3, {"since": None, "activities": [], "status": "online", "afk": False})

        await asyncio.gather(chat(), chat(), chat())
        assert heard.ear.counts["lost"] == 0
        assert gateway.book.beats > 5
        await heard.connection.close(4000)
        with pytest.raises(ConnectionError, match="shard 0 is not ready"):
            await heard.connection.send(3, {})

    play(scene, heartbeat_s=BEAT_S, sends=30, sends_window_s=0.45)


# ---------------------------------------------------------------- close codes


@pytest.mark.parametrize("code", [4004, 4010, 4011, 4012, 4013, 4014])
def test_a_fatal_code_ends_the_shard_after_one_identify(code: int) -> None:
    """hikari-py/hikari#330: a loop on 4010 to 4014."""

    async def scene(gateway: Gateway) -> None:
        gateway.script.add(Fault(do="close", at="identify", code=code, times=None))
        heard = Heard(gateway)
        heard.connection.start()
        await until(lambda: heard.ear.end, heard.describe)
        await asyncio.sleep(0.1)
        assert heard.ear.end is not None
        assert heard.ear.end[1:] == (True, code)
        assert gateway.book.counts["identify"] == 1
        assert heard.connection.state == "over"
        await heard.connection.close(1000)

    play(scene)


@pytest.mark.parametrize("code", [4000, 4001, 4002, 4003, 4005, 4008, 1000, 1001, 1011, 4999])
def test_any_other_code_is_followed_by_a_resume(code: int) -> None:
    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        gateway.act(Fault(do="close", code=code))
        type_in(gateway, "ann")
        await heard.settled(2)
        assert (gateway.book.counts["identify"], heard.ear.typed()) == (1, ["ann"])
        await heard.connection.close(4000)

    play(scene)


@pytest.mark.parametrize("code", [4007, 4009])
def test_a_code_that_ends_the_session_is_followed_by_a_new_one_and_no_resume(code: int) -> None:
    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        gateway.act(Fault(do="close", code=code))
        await heard.settled(2)
        assert (gateway.book.counts["identify"], gateway.book.counts["resume"]) == (2, 0)
        await heard.connection.close(4000)

    play(scene)


def test_a_shard_that_is_closed_again_and_again_pauses() -> None:
    """discord/discord-api-docs#1023: one shard of 24 in a loop of 1011; discordjs/discord.js#5360: until the limit."""

    async def scene(gateway: Gateway) -> None:
        heard = Heard(gateway, numbers=QUICK._replace(breaker_pause_s=30.0))
        gateway.script.add(Fault(do="close", at="identify", code=1011, times=None))
        heard.connection.start()
        await until(lambda: heard.connection.state == "paused", heard.describe)
        assert heard.ear.waits[-1] == 30.0
        assert gateway.book.counts["identify"] == 5
        await heard.connection.close(4000)

    play(scene)


def test_what_makes_no_sense_is_closed_and_resumed() -> None:
    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        gateway.act(Fault(do="garble"))
        await heard.settled(2)
        assert heard.ear.whys == ["Discord sent a payload that is no JSON"]
        await heard.connection.close(4000)

    play(scene)


@pytest.mark.parametrize("data", [[], None, "text", 7])
def test_a_dispatch_whose_data_is_no_object_is_passed_over(data: Any) -> None:
    """kordlib/kord#42: Discord sends a PRESENCES_REPLACE with a list. Whoever closes for it gets it again by RESUME."""

    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        type_in(gateway, "ann")
        gateway.say(0, "PRESENCES_REPLACE", data, numbered=False)
        type_in(gateway, "ben")
        await until(lambda: heard.ear.typed() == ["ann", "ben"], heard.describe)
        assert heard.ear.whys == []
        assert "PRESENCES_REPLACE" not in [event.name for event in heard.ear.events]
        await heard.connection.close(4000)

    play(scene)


def test_a_fault_before_a_socket_is_open_is_told_and_followed_by_another_try(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(gateway: Gateway) -> None:
        heard = Heard(gateway)
        turn, heard.ear.turn = heard.ear.turn, no_turn
        heard.connection.start()
        await until(lambda: heard.ear.counts["lost"] == 2, heard.describe)
        heard.ear.turn = turn
        await heard.settled()
        assert set(heard.ear.whys) == {"a fault: RuntimeError"}
        await heard.connection.close(4000)

    def no_turn() -> Any:
        raise RuntimeError("as it must not be")

    play(scene)
    assert "as it must not be" in caplog.text


# ---------------------------------------------------------------- closing


@pytest.mark.parametrize("code", [4000, 1000])
def test_the_code_that_is_asked_for_is_the_one_that_is_sent(code: int) -> None:
    """aio-libs/aiohttp#7306, discord/discord-api-docs#1472, PluralKit#367: 1000 goes out, and the session with it."""

    async def scene(gateway: Gateway) -> None:
        shards = 20
        heard = [await Heard(gateway, shard=shard, total=shards).settled() for shard in range(shards)]
        for _ in range(50):
            for guild in gateway.guilds.ids:
                gateway.say(guild, "TYPING_START", {"channel_id": "1", "user_id": "ann", "timestamp": 1})
        await asyncio.gather(*(each.connection.close(code) for each in heard))
        count = [len(each.ear.events) for each in heard]
        await until(lambda: len(codes(gateway)) == shards, lambda: codes(gateway))
        assert codes(gateway) == [code] * shards
        assert len(list(gateway.sessions)) == (shards if code == 4000 else 0)
        assert [len(each.ear.events) for each in heard] == count, "nothing is heard after it was closed"
        assert [each.ear.end for each in heard] == [None] * shards

    play(scene, guilds=40, shards=20, concurrency=20)


@pytest.mark.parametrize("moment", ["waiting", "connecting", "hello", "identifying", "resuming", "reconnecting"])
def test_it_can_be_closed_at_any_moment(moment: str) -> None:
    async def scene(gateway: Gateway) -> None:
        session = None
        if moment == "resuming":
            first = await Heard(gateway).settled()
            session = first.connection.session
            await first.connection.close(4000)
        heard = Heard(gateway, session=session, numbers=QUICK._replace(again_s=5, again_most_s=5, ready_s=9, hello_s=9))
        if moment == "waiting":
            await heard.connection.close(4000)
            assert heard.connection.state == "over"
            return
        ats = {"connecting": "connect", "hello": "hello", "identifying": "identify", "resuming": "resume"}
        if moment == "reconnecting":
            gateway.script.add(Fault(do="reset", at="hello"))
        else:
            gateway.script.add(Fault(do="silence", at=ats[moment]))  # type: ignore[arg-type]
        heard.connection.start()
        await until(lambda: heard.connection.state == moment, heard.describe)
        await asyncio.sleep(0.02)
        await heard.connection.close(4000)
        assert heard.connection.state == "over"
        assert heard.ear.turns == 0

    play(scene)


class StandsStill:
    """A gateway that says HELLO and RESUMED, and then takes nothing any more."""

    def __init__(self) -> None:
        """Nobody is connected."""
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        protocol = ServerProtocol()
        protocol.receive_data(await reader.readuntil(b"\r\n\r\n"))
        request = protocol.events_received()[0]
        assert isinstance(request, Request)
        protocol.send_response(protocol.accept(request))
        protocol.send_text(b'{"op":10,"d":{"heartbeat_interval":60000}}')
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.writelines(protocol.data_to_send())
        await asyncio.sleep(0.1)
        protocol.send_text(b'{"op":0,"s":5,"t":"RESUMED","d":{}}')
        writer.writelines(protocol.data_to_send())


def test_a_socket_that_stands_still_holds_nothing_up() -> None:
    """The loop goes on while nothing can be sent, and closing is over in its time."""

    async def scene(gateway: Gateway) -> None:
        still = StandsStill()
        server = await asyncio.start_server(still.serve, "127.0.0.1", 0)
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        numbers = QUICK._replace(sends=1_000_000, connect_s=30.0, ready_s=30.0)
        heard = await Heard(gateway, url=url, session=Session("s", 4, url), numbers=numbers).settled()

        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                await heard.connection.send(3, "x" * 4000)
                sent += 1

        flooding = [asyncio.create_task(flood()) for _ in range(2)]
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.1)
        assert sent > 0
        other = await Heard(gateway).settled()
        for user in range(20):
            type_in(gateway, str(user))
            await until(lambda: len(other.ear.typed()) == user + 1, other.describe)  # noqa: B023 - called at once
        await heard.connection.close(4000)
        assert [type(error) for error in await asyncio.gather(*flooding, return_exceptions=True)] == [
            ConnectionError
        ] * 2
        await other.connection.close(4000)
        for writer in still.writers:
            writer.transport.abort()
        server.close()
        await server.wait_closed()

    play(scene)


# ---------------------------------------------------------------- secrets


def test_the_token_is_in_no_log_and_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def scene(gateway: Gateway) -> None:
        heard = await Heard(gateway).settled()
        for fault in (Fault(do="garble"), Fault(do="reset"), Fault(do="close", code=4008)):
            settled = heard.ear.counts["settled"]
            gateway.act(fault)
            await heard.settled(settled + 1)

        def fail(_event: object) -> None:
            raise RuntimeError("of who listens")

        heard.ear.on_heard = fail
        type_in(gateway, "ann")
        await until(lambda: any("RuntimeError" in why for why in heard.ear.whys), heard.describe)
        assert TOKEN not in repr(heard.connection)
        assert not [why for why in heard.ear.whys if TOKEN in why]
        await heard.connection.close(4000)

    play(scene)
    assert "of who listens" in caplog.text
    assert TOKEN not in caplog.text
