"""The outbox on each kind of server: what it hands on, what it keeps, and what it leaves to a successor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tasks.shards.gateway.session import Session
from tests.shards.delivering import URL, Cluster, event, until

if TYPE_CHECKING:
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
