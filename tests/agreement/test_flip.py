"""FLIP loses nothing: it waits until the active target has handed on what nobody else heard. And written otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

from tasks.shards import operations
from tests.shards.delivering import NUMBERS, Cluster, batch, parcel, written_otherwise

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.shards.vocabulary import Slot
    from tests.shards.delivering import Member
    from tests.support.servers import Client


class Overlap:
    """An active shard of `a` that has a session, and a pending target of two shards that `b` has ready."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.a, self.b = cluster, cluster.a, cluster.member("b#1")
        self.old: Slot = (cluster.serving(), 0)
        self.a.deliver(self.old, batch(self.a, self.old, [parcel(2, "x")]))
        self.version = cluster.target(2)
        self.b.claim(self.version, 0, 1)
        self.b.sync()

    def ready(self, *, generation: int = 1) -> None:
        """READY of both new shards is told."""
        for shard in (0, 1):
            slot = (self.version, shard)
            name = f"two-{shard}-{generation}"
            told = self.b.deliver(slot, batch(self.b, slot, [], name, generation=generation, ready_ago_ms=0))
            assert told.code == "waits"

    def began(self, member: Member | None = None) -> str:
        """The token of the last READY, as the active shard hears of it."""
        member = member or self.a
        return member.deliver(self.old, batch(member, self.old, [])).began

    def reach(self, token: str, member: Member | None = None) -> None:
        """The active shard has handed on what it heard until well after."""
        member = member or self.a
        assert member.deliver(self.old, batch(member, self.old, [], reached=token)).code == "serves"

    def flips(self) -> bool:
        return self.b.flip(self.version) == 1


def it_waits_until_the_active_one_is_that_far(cluster: Cluster) -> None:
    overlap = Overlap(cluster)
    assert not overlap.flips(), "no READY is told"
    overlap.ready()
    assert not overlap.flips(), "nobody has answered"
    overlap.reach(overlap.began())
    assert overlap.flips()


def another_ready_is_another_answer(cluster: Cluster) -> None:
    overlap = Overlap(cluster)
    overlap.ready()
    first = overlap.began()
    overlap.reach(first)
    while overlap.began() == first:
        overlap.ready(generation=2)
    assert not overlap.flips()
    overlap.reach(overlap.began())
    assert overlap.flips()


def a_shard_that_is_being_resumed_is_waited_for(cluster: Cluster) -> None:
    """What its session missed nobody else may have heard. It was that far before it fell."""
    overlap = Overlap(cluster)
    overlap.ready()
    overlap.reach(overlap.began())
    overlap.a.release(overlap.old)
    assert not overlap.flips(), "nobody has it"
    c = cluster.member("c#1")
    c.claim(*overlap.old)
    assert not overlap.flips(), "it is not ready"
    c.sync()
    overlap.reach(overlap.began(c), c)
    assert overlap.flips()


def a_shard_without_a_session_has_nothing_to_resume(cluster: Cluster) -> None:
    overlap = Overlap(cluster)
    overlap.ready()
    overlap.a.deliver(overlap.old, batch(overlap.a, overlap.old, [], ended=True))
    assert overlap.flips()


def a_new_shard_that_discord_has_cut_off_is_waited_for(cluster: Cluster) -> None:
    """Also when the active target is waited for no longer: it serves, and the new one would not."""
    overlap = Overlap(cluster)
    overlap.ready()
    overlap.reach(overlap.began())
    overlap.b.ops.numbers = NUMBERS._replace(settle_ms=0)
    slot = (overlap.version, 1)
    overlap.b.deliver(slot, batch(overlap.b, slot, [], "two-1-1", ended=True))
    assert not overlap.flips(), "its session is over"
    overlap.ready(generation=2)
    assert overlap.flips()


def it_does_not_wait_for_ever(cluster: Cluster) -> None:
    overlap = Overlap(cluster)
    overlap.ready()
    overlap.b.ops.numbers = NUMBERS._replace(settle_ms=0)
    assert overlap.flips()


def nothing_is_asked_of_connections_that_are_none(cluster: Cluster) -> None:
    """Simulated ones have no sessions."""
    b = cluster.member("b#1")
    cluster.serving()
    version = cluster.target(2)
    b.claim(version, 0, 1)
    b.sync()
    assert b.flip(version) == 1


CLOSED: list[tuple[Callable[[Cluster], None], dict[str, str]]] = [
    (it_waits_until_the_active_one_is_that_far, {"if not began or call('HGET'": "if began and call('HGET'"}),
    (it_waits_until_the_active_one_is_that_far, {"'reached:' .. shard) ~= began": "'reached:' .. shard) == 'x'"}),
    (another_ready_is_another_answer, {"'reached:' .. shard) ~= began": "'reached:' .. shard) == false"}),
    (a_shard_that_is_being_resumed_is_waited_for,
     {"if not bind or bind.state ~= 'ready' or not living(bind.holder) then return 0 end\n      if": "if"}),
    (a_shard_without_a_session_has_nothing_to_resume, {"saved.id ~= NONE": "true"}),
    (a_new_shard_that_discord_has_cut_off_is_waited_for, {"not saved or saved.id == NONE": "not saved"}),
    (it_does_not_wait_for_ever, {"active and not waited": "active"}),
    (nothing_is_asked_of_connections_that_are_none, {"if saved and saved.id ~= NONE then": "if true then"}),
]  # fmt: skip
SCENES = list(dict.fromkeys(scene for scene, _ in CLOSED))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_holds(server: Client, scene: Callable[[Cluster], None]) -> None:
    scene(Cluster(server))


@pytest.mark.parametrize(("scene", "changes"), CLOSED, ids=[f"{s.__name__}-{n}" for n, (s, _) in enumerate(CLOSED)])
def test_fails_when_written_the_other_way(
    valkey: Client, scene: Callable[[Cluster], None], changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    used = written_otherwise(valkey, operations, "flip", changes, monkeypatch)
    with pytest.raises((AssertionError, redis.ResponseError)):
        scene(Cluster(valkey))
    assert used == set(changes), "the variant changes nothing: its text has moved"
