"""Redis fails over under a whole bot on real processes: another server goes on, without the last writes of the first.

The pods find Redis behind an address that moves. What consumers heard is weighed against the stand-in's book.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from app.local.proxy import Proxy
from app.local.servers import Server
from app.local.shards.stage import BotStage
from tests.support.probed import Probed
from tests.support.replicas import in_step, make_replica
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.discord.book import Entry

SHARDS, PODS, TTL_S, PER_S = 8, 3, 3.0, 40.0
SCANS_S = 4.0
KEEPS_ITS_DATA = {"appendonly": "yes", "appendfsync": "always", "save": ""}
FORGOTTEN = 20
"""Events that the replica does not get, at least."""


class Doubled(BotStage):
    """A bot whose Redis has a replica."""

    def __init__(self) -> None:
        super().__init__(shards=SHARDS, guilds=64, ttl_s=TTL_S, server=KEEPS_ITS_DATA)
        self.replica = Server(self.guard, options=KEEPS_ITS_DATA)
        self.link, self.address = (Proxy(("127.0.0.1", self.server.port)).start() for _ in range(2))

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self.link.close()
        self.address.close()

    @property
    def redis_url(self) -> str:
        return f"redis://127.0.0.1:{self.address.port}/0"

    def start_redis(self) -> None:
        self.server.start()
        self.replica.start()
        make_replica(self.replica, self.link)
        in_step(self.server, self.replica)

    def lead_to_replica(self) -> None:
        """It is the master now, and new connections find it; open ones stay where they are."""
        make_replica(self.replica, None)
        self.address.point_to(("127.0.0.1", self.replica.port))
        self.client.connection_pool.disconnect()

    def sum_of(self, metric: str, **labels: str) -> float:
        """Over all pods."""
        return sum(Probed(self.pods[name], port).metric(metric, **labels) for name, port in self.probes.items())

    def holders(self) -> dict[tuple[int, int], tuple[str, int]]:
        """Slot -> member and fence."""
        return {slot: (bind.member, bind.fence) for slot, bind in self.look().view.binds.items()}


@pytest.fixture
def stage() -> Iterator[Doubled]:
    """Three pods that hold eight shards, under events."""
    with Doubled() as made:
        made.start(PODS)
        made.wait_settled(SHARDS)
        made.discord.load(PER_S)
        wait_until(lambda: made.heard_count() > PER_S, 30.0, what=made.last_words)
        yield made


def said(stage: Doubled) -> int:
    return stage.discord.look()["said"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["killed", "made a replica"])
def test_redis_fails_over(stage: Doubled, how: str) -> None:
    """Sockets, holders and fences stay; what is lost had reached the first server alone, and pods have counted it."""
    wait_until(lambda: stage.look().head.guard_ms == 0, 30.0)
    before = stage.holders()
    stage.consumer.pause()  # so that what the first server alone has is not taken from it
    in_step(stage.server, stage.replica)
    from_s, count = stage.discord.now_s(), said(stage)
    stage.link.refuse()
    wait_until(lambda: said(stage) >= count + FORGOTTEN, 10.0)
    if how == "killed":
        stage.server.kill()
        stage.lead_to_replica()
    else:
        stage.lead_to_replica()
        make_replica(stage.server, stage.replica)
    stage.consumer.resume()
    moved_s = stage.discord.now_s()
    wait_until(lambda: stage.look().head.guard_ms, 20.0, what=stage.last_words)
    wait_until(lambda: right_again(stage, before), 60.0, what=stage.last_words, every_s=0.2)
    assert stage.discord.now_s() - moved_s < TTL_S + SCANS_S + 10.0
    stage.hush()
    assert ends(stage, from_s) == []
    verdict = stage.verdict()
    assert [event for event in verdict.lost if not from_s - 1.0 < event.at_s < moved_s + 0.5] == []
    assert (verdict.doubled, verdict.disordered) == ([], []), verdict.broken
    assert 0 < len(verdict.lost) <= stage.sum_of("headroom_shard_events_forgotten_total")
    assert stage.holders() == before, "nobody took anything over"


def right_again(stage: Doubled, before: object) -> bool:
    """Each shard is served by whom it was, everybody has a lease, and the guard is over."""
    head = stage.look().head
    leases = stage.sum_of("headroom_shard_lease")
    return stage.settled(SHARDS) and stage.holders() == before and head.guard_ms == 0 and leases == PODS


def ends(stage: Doubled, from_s: float) -> list[Entry]:
    """What befell connections and sessions."""
    return [entry for entry in stage.entries(from_s) if entry.kind != "beat"]
