"""The outbox on a real server: what it hands on, what it keeps, and what it leaves to a successor."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from tasks.shards.delivery.backlog import Backlog
from tasks.shards.delivery.calls import Delivered, Overlapped
from tasks.shards.delivery.standstill import CATCH_UP_S, STOOD_S
from tasks.shards.gateway.session import Event, Session
from tests.shards.delivering import QUEUE, URL, Cluster, Plain, event, until
from throttle import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.shards.delivery.parcels import Written
    from tests.support.servers import Client


def test_events_go_on_in_their_order_and_the_sequence_is_saved(server: Client) -> None:
    cluster = Cluster(server)
    slot = (cluster.serving(), 0)

    async def run() -> None:
        a, fence = cluster.a, cluster.a.fences[slot]
        async with a.outbox() as outbox:
            assert await outbox.open(slot, fence) is None
            session = Session("s1", 1, URL)
            outbox.began(slot, fence, session, [])
            for number in range(500):
                outbox.put(slot, fence, event(session, 2 + number, f"{number}"))
            assert await outbox.flush(slot, fence, 10.0)
            assert outbox.handed_on(slot, fence) == 501

    asyncio.run(run())
    assert cluster.contents() == [str(number) for number in range(500)]
    assert cluster.saved(slot).startswith("501 ")


def test_a_pending_target_hands_on_what_the_active_one_did_not(server: Client) -> None:
    cluster = Cluster(server)
    old = (cluster.serving(), 0)
    b = cluster.member("b#1")

    async def run() -> None:
        a = cluster.a
        async with a.outbox(margin_s=0.3) as out_a, b.outbox() as out_b:
            await out_a.open(old, a.fences[old])
            one = Session("one", 1, URL)
            out_a.began(old, a.fences[old], one, [])
            out_a.settled(old, a.fences[old])
            out_a.put(old, a.fences[old], event(one, 2, "before"))
            version = cluster.target(2)
            b.claim(version, 0, 1)
            b.pending = a.pending
            sessions: dict[int, Session] = {}
            for shard in (0, 1):
                new, fence = (version, shard), b.fences[version, shard]
                assert await out_b.open(new, fence) is None
                sessions[shard] = Session(f"two-{shard}", 1, URL)
                out_b.began(new, fence, sessions[shard], [])
                out_b.settled(new, fence)
            b.sync()
            for number in range(20):
                out_a.put(old, a.fences[old], event(one, 3 + number, f"both-{number}", of=number))
                new = (version, number % 2)
                out_b.put(new, b.fences[new], event(sessions[new[1]], 2 + number // 2, f"both-{number}", of=number))
            await until(lambda: b.flip(version))
            for number in range(20, 30):
                out_a.put(old, a.fences[old], event(one, 3 + number, f"both-{number}", of=number))
                new = (version, number % 2)
                out_b.put(new, b.fences[new], event(sessions[new[1]], 2 + number // 2, f"both-{number}", of=number))
            for new in b.fences:
                await until(lambda new=new: out_b.handed_on(new, b.fences[new]) == 16)
            await until(lambda: (old, "over") in a.refusals)

    asyncio.run(run())
    assert cluster.twice() == []
    assert sorted(cluster.contents()) == sorted(["before", *(f"both-{number}" for number in range(30))])


def test_a_new_total_waits_until_each_old_shard_has_a_sign_that_it_heard_everything(valkey: Client) -> None:
    """An answer to a beat that went out well after the last READY, on a socket that is not behind."""
    cluster = Cluster(valkey)
    old = (cluster.serving(), 0)
    b = cluster.member("b#1")

    async def run() -> None:
        a = cluster.a
        a.hears = False
        fence = a.fences[old]
        async with a.outbox(margin_s=0.1) as out_a, b.outbox() as out_b:
            await out_a.open(old, fence)
            out_a.began(old, fence, Session("one", 1, URL), [])
            out_a.settled(old, fence)
            version = cluster.target(2)
            b.claim(version, 0, 1)
            before_s = time.monotonic()
            for new, its_fence in b.fences.items():
                await out_b.open(new, its_fence)
                out_b.began(new, its_fence, Session(f"two-{new[1]}", 1, URL), [])
            b.sync()
            await until(lambda: a.beats)

            async def never() -> None:
                await asyncio.sleep(0.4)
                assert b.flip(version) == 0

            await never()
            out_a.answered(old, fence, before_s)  # a regular beat, of before READY
            await never()
            out_a.lost(old, fence)
            out_a.answered(old, fence, time.monotonic())  # while it is told what it missed
            resumed_s = time.monotonic()
            out_a.settled(old, fence)
            await until(lambda: a.beats == 2)
            out_a.answered(old, fence, resumed_s - 0.01)  # likewise
            await never()
            out_a.answered(old, fence, time.monotonic())
            await until(lambda: b.flip(version) == 1)

    asyncio.run(run())


def test_nothing_is_lost_or_doubled_when_connections_break(valkey: Client) -> None:
    """Answers get lost while events come: what was done and what was not, nobody knows."""
    cluster = Cluster(valkey)
    slot = (cluster.serving(), 0)

    async def run() -> None:
        a, fence = cluster.a, cluster.a.fences[slot]
        async with a.outbox() as outbox:
            await outbox.open(slot, fence)
            session = Session("s1", 1, URL)
            outbox.began(slot, fence, session, [])
            for number in range(600):
                outbox.put(slot, fence, event(session, 2 + number, f"{number}"))
                await asyncio.sleep(0.001)
                if number % 60 == 0:
                    valkey.client_kill_filter(_type="normal", skipme=True)
            assert await outbox.flush(slot, fence, 20.0)

    asyncio.run(run())
    assert cluster.contents() == [str(number) for number in range(600)]


def test_what_is_read_after_a_standstill_is_told_late(valkey: Client) -> None:
    """Its times say nothing: all that waited in the socket seems to have come at once."""
    cluster = Cluster(valkey)
    old = (cluster.serving(), 0)
    version = cluster.target(2)

    async def run() -> None:
        a, fence = cluster.a, cluster.a.fences[old]
        async with a.outbox() as outbox:
            await outbox.open(old, fence)
            session = Session("one", 1, URL)
            outbox.began(old, fence, session, [])
            outbox.settled(old, fence)
            await asyncio.sleep(0.2)
            outbox.put(old, fence, event(session, 2, "on time"))
            time.sleep(STOOD_S + 0.3)  # noqa: ASYNC251 - the standstill
            outbox.put(old, fence, event(session, 3, "waited"))
            await asyncio.sleep(0.2)
            outbox.put(old, fence, event(session, 4, "waited at the sender"))
            await asyncio.sleep(CATCH_UP_S)
            outbox.put(old, fence, event(session, 5, "on time again"))
            assert await outbox.flush(old, fence, 10.0)

    asyncio.run(run())
    late = [fields[b"r"] for shard in (0, 1) for _, fields in cluster.log(version, shard)]
    assert late == [b"0", b"1", b"1", b"0"]


def test_what_nobody_wants_moves_the_sequence_seldom(valkey: Client) -> None:
    cluster = Cluster(valkey)
    slot = (cluster.serving(), 0)

    def calls() -> int:
        return int(valkey.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))

    async def run() -> None:
        a, fence = cluster.a, cluster.a.fences[slot]
        async with a.outbox() as outbox:
            await outbox.open(slot, fence)
            session = Session("s1", 1, URL)
            outbox.began(slot, fence, session, [])
            await until(lambda: cluster.saved(slot))
            before, began_s = calls(), time.monotonic()
            for number in range(400):
                outbox.put(slot, fence, event(session, 2 + number, "", name="PRESENCE_UPDATE"))
                await asyncio.sleep(0.002)
            assert calls() - before <= 4 * (time.monotonic() - began_s) + 2
            await until(lambda: cluster.saved(slot).startswith("401 "))
            idle = calls()
            await asyncio.sleep(0.6)
            assert calls() == idle, "who has nothing to say says nothing"

    asyncio.run(run())
    assert cluster.contents() == []


def test_what_a_session_makes_for_itself_is_left_out(valkey: Client) -> None:
    """GUILD_CREATE of the guilds that READY named; not of one that the bot comes to, nor the same one's later.

    A guild that went before it came is none of them any more: thrown out, and asked back; or in an outage, and over it.
    """
    cluster = Cluster(valkey)
    slot = (cluster.serving(), 0)

    async def run() -> None:
        a, fence = cluster.a, cluster.a.fences[slot]
        async with a.outbox() as outbox:
            await outbox.open(slot, fence)
            session = Session("s1", 1, URL)
            outbox.began(slot, fence, session, [11, 12, 14])
            told = [("own", 11), ("joined", 13), ("own", 12), ("again", 12), ("left", 14), ("back", 14)]
            for sequence, (content, of) in enumerate(told, start=2):
                name = "GUILD_DELETE" if content == "left" else "GUILD_CREATE"
                outbox.put(slot, fence, Event(session.id, sequence, name, {"id": str(of), "content": content}, 10))
            assert await outbox.flush(slot, fence, 5.0)

    asyncio.run(run())
    assert cluster.contents() == ["joined", "again", "left", "back"]


def test_a_session_is_handed_on_to_its_end_before_the_next(valkey: Client) -> None:
    cluster = Cluster(valkey)
    slot = (cluster.serving(), 0)

    async def run() -> None:
        a, fence = cluster.a, cluster.a.fences[slot]
        async with a.outbox() as outbox:
            await outbox.open(slot, fence)
            for generation in range(1, 5):
                session = Session(f"s{generation}", 1, URL)
                outbox.began(slot, fence, session, [])
                for number in range(50):
                    outbox.put(slot, fence, event(session, 2 + number, f"{generation}-{number}"))
                if generation % 2:
                    outbox.dropped(slot, fence)
            with pytest.raises(ValueError, match="not the current one"):
                outbox.put(slot, fence, event(Session("s1", 1, URL), 60, "late"))
            assert await outbox.flush(slot, fence, 5.0)
            a.release(slot)
            a.claim(*slot)
            assert await outbox.open(slot, a.fences[slot]) == Session("s4", 51, URL)
            outbox.dropped(slot, a.fences[slot])
            await until(lambda: " - " in cluster.saved(slot))
            assert await outbox.open(slot, a.fences[slot]) is None

    asyncio.run(run())
    assert cluster.contents() == [f"{generation}-{number}" for generation in range(1, 5) for number in range(50)]


def test_a_full_outbox_gives_the_oldest_shard_up_and_loses_nothing(valkey: Client) -> None:
    cluster = Cluster(valkey)
    version = cluster.serving(2)
    one, two = (version, 0), (version, 1)
    valkey.set(QUEUE, "no list")  # so that nothing goes on
    outgrown: list[Sequence[object]] = []

    def hear(event: events.Event, values: Sequence[object]) -> None:
        outgrown.extend([values] if event is events.SHARD_OUTGROWN else [])

    async def run() -> None:
        a = cluster.a
        sessions = {one: Session("s1", 1, URL), two: Session("s2", 1, URL)}
        async with a.outbox(most=(20, 10**9)) as outbox:
            for slot, session in sessions.items():
                await outbox.open(slot, a.fences[slot])
                outbox.began(slot, a.fences[slot], session, [])
            await until(lambda: cluster.saved(one) and cluster.saved(two))
            for number in range(15):
                outbox.put(one, a.fences[one], event(sessions[one], 2 + number, f"one-{number}"))
            for number in range(15):
                outbox.put(two, a.fences[two], event(sessions[two], 2 + number, f"two-{number}"))
            assert a.refusals == [(one, "full")]
            assert outgrown == [(*one, 15, 1500)]
            outbox.close(one, a.fences[one])
            a.release(one)
            valkey.delete(QUEUE)
            assert await outbox.flush(two, a.fences[two], 5.0)
            a.claim(*one)
            assert await outbox.open(one, a.fences[one]) == Session("s1", 1, URL)
            for number in range(15):
                outbox.put(one, a.fences[one], event(sessions[one], 2 + number, f"one-{number}"))
            assert await outbox.flush(one, a.fences[one], 5.0)

    events.subscribe(hear)
    try:
        asyncio.run(run())
    finally:
        events.unsubscribe(hear)
    assert sorted(cluster.contents()) == sorted(f"{shard}-{n}" for shard in ("one", "two") for n in range(15))


def test_what_was_given_up_stays_so() -> None:
    """An answer may be under way meanwhile: it must not bring back what is to be closed."""
    session = Session("s1", 1, URL)
    backlog = Backlog((1, 0), 7, session)
    serves = Overlapped("serves", 0, 0, ())
    backlog.note_log(serves)
    backlog.put(event(session, 2, "x"), 0.0, wanted=True)
    batch = backlog.batch(0.0, Plain(), lazy=True, beside=False)
    assert batch is not None
    backlog.give_up()
    backlog.delivered(batch, Delivered("serves", 2), 0.0)
    backlog.note_log(serves)
    assert backlog.standing == "over"
    assert not backlog.put(event(session, 3, "y"), 0.0, wanted=True)


def test_an_event_that_cannot_be_written_holds_up_its_shard_alone(
    valkey: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A setting of the application's may be wrong: it is told, and what waits goes on when it is right."""
    cluster = Cluster(valkey)
    version = cluster.serving(2)
    one, two = (version, 0), (version, 1)

    class Wrong(Plain):
        wrong = True

        def write(self, event: Event, identity: str) -> Written:
            if self.wrong and event.session_id == "s1":
                raise LookupError("no such queue")
            return super().write(event, identity)

    async def run() -> None:
        a, writer = cluster.a, Wrong()
        sessions = {one: Session("s1", 1, URL), two: Session("s2", 1, URL)}
        async with a.outbox(writer=writer) as outbox:
            for slot, session in sessions.items():
                await outbox.open(slot, a.fences[slot])
                outbox.began(slot, a.fences[slot], session, [])
            for number in range(5):
                for slot, session in sessions.items():
                    outbox.put(slot, a.fences[slot], event(session, 2 + number, f"{session.id}-{number}"))
            assert await outbox.flush(two, a.fences[two], 5.0)
            assert not await outbox.flush(one, a.fences[one], 0.6)
            (told,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
            assert told.endswith(
                f"of shard {one} is handed on: its events cannot be written ({LookupError('no such queue')!r})"
            )
            writer.wrong = False
            assert await outbox.flush(one, a.fences[one], 5.0)

    asyncio.run(run())
    assert sorted(cluster.contents()) == sorted(f"{shard}-{n}" for shard in ("s1", "s2") for n in range(5))


def test_a_fault_of_the_outbox_itself_ends_nothing_and_is_told_once(
    valkey: Client, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(valkey)
    slot = (cluster.serving(), 0)

    async def run() -> None:
        a, fence = cluster.a, cluster.a.fences[slot]
        a.pending = cast("Any", "no target")
        async with a.outbox() as outbox:
            await outbox.open(slot, fence)
            session = Session("s1", 1, URL)
            outbox.began(slot, fence, session, [])
            await until(lambda: "the outbox failed (AttributeError" in caplog.text)
            for number in range(3):
                outbox.put(slot, fence, event(session, 2 + number, f"{number}"))
            await asyncio.sleep(1.0)  # a few more tries
            a.pending = None
            assert await outbox.flush(slot, fence, 5.0)

    asyncio.run(run())
    assert cluster.contents() == ["0", "1", "2"]
    assert caplog.text.count("the outbox failed") == 1


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, asyncio.CancelledError])
def test_what_a_callback_raises_ends_nothing(valkey: Client, error: type[BaseException]) -> None:
    """Not the loop that holds the connections, and the event does not come again."""
    cluster = Cluster(valkey)
    slot = (cluster.serving(), 0)
    called: list[str] = []

    async def callback(event: Event) -> None:
        called.append(event.data["content"])
        raise error

    async def run() -> None:
        a, fence = cluster.a, cluster.a.fences[slot]
        async with a.outbox(callback=callback) as outbox:
            await outbox.open(slot, fence)
            outbox.began(slot, fence, Session("s1", 1, URL), [])
            for number in range(3):
                outbox.put(slot, fence, event(Session("s1", 1, URL), 2 + number, f"{number}"))
            assert await outbox.flush(slot, fence, 5.0)

    asyncio.run(run())
    assert called == ["0", "1", "2"]


def test_a_callback_that_does_not_end_is_cancelled_with_its_shard(valkey: Client) -> None:
    """Else each pod that has the shard keeps it, for ever; and two work on the same event."""
    cluster = Cluster(valkey)
    slot = (cluster.serving(), 0)
    told: list[str] = []

    async def callback(_event: Event) -> None:
        told.append("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    async def run() -> None:
        a, fence = cluster.a, cluster.a.fences[slot]
        async with a.outbox(callback=callback) as outbox:
            await outbox.open(slot, fence)
            session = Session("s1", 1, URL)
            outbox.began(slot, fence, session, [])
            for number in range(3):
                outbox.put(slot, fence, event(session, 2 + number, f"{number}"))
            await until(lambda: told == ["begun"])
            outbox.close(slot, fence)
            await until(lambda: told == ["begun", "cancelled"])
            await asyncio.sleep(0.3)
        assert told == ["begun", "cancelled"]

    asyncio.run(run())


def test_a_callback_has_each_event_in_order_and_its_errors_stop_nothing(valkey: Client) -> None:
    """A pod that dies before the sequence is saved calls again what it called: at least once."""
    cluster = Cluster(valkey)
    slot = (cluster.serving(), 0)
    called: list[str] = []

    async def callback(event: Event) -> None:
        await asyncio.sleep(0)
        called.append(event.data["content"])
        if event.data["content"] == "3":
            raise RuntimeError("an error of the user's")

    async def run() -> None:
        a, fence = cluster.a, cluster.a.fences[slot]
        session = Session("s1", 1, URL)
        async with a.outbox(callback=callback) as outbox:
            await outbox.open(slot, fence)
            outbox.began(slot, fence, session, [])
            for number in range(6):
                outbox.put(slot, fence, event(session, 2 + number, f"{number}"))
            assert await outbox.flush(slot, fence, 5.0)
        assert called == [f"{number}" for number in range(6)]
        a.release(slot)
        async with a.outbox(callback=callback) as outbox:
            a.claim(*slot)
            resumed = await outbox.open(slot, a.fences[slot])
            assert resumed == Session("s1", 7, URL)
            fence = a.fences.pop(slot)  # the lease is over
            outbox.put(slot, fence, event(session, 8, "not ours"))
            await asyncio.sleep(0.4)
            assert "not ours" not in called

    asyncio.run(run())
    assert cluster.contents() == []
