"""DELIVER by itself, on each kind of server: what it does once, what it refuses, and the same written otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

from tasks.shards.delivery import calls
from tasks.shards.delivery.calls import read_session
from tasks.shards.delivery.overlap import ALL_LEFT
from tests.shards.delivering import QUEUE, Cluster, Member, batch, parcel, written_otherwise
from throttle.keys import Keys as FleetKeys
from throttle.scripts import Operations, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.servers import Client

THREE = [parcel(2, "x"), parcel(3, "y"), parcel(4, "z")]


def a_batch_that_is_sent_again_is_handed_on_once(cluster: Cluster) -> None:
    slot = (cluster.serving(), 0)
    a = cluster.a
    assert a.deliver(slot, batch(a, slot, THREE)).sequence == 4
    assert a.deliver(slot, batch(a, slot, [*THREE, parcel(5, "new")])).sequence == 5
    assert cluster.contents() == ["x", "y", "z", "new"]


def a_pod_that_stood_still_is_refused_when_another_has_the_shard(cluster: Cluster) -> None:
    """It is frozen between all that it looks at and the push; the shard is released, claimed and resumed meanwhile."""
    slot = (cluster.serving(), 0)
    a, b = cluster.a, cluster.member("b#1")
    frozen = a.calls.deliver(slot, batch(a, slot, THREE))
    a.release(slot)
    b.claim(slot[0], 0)
    assert b.deliver(slot, batch(b, slot, THREE[:2])).code == "serves"
    assert calls.read_delivered(a.send(frozen)).code == "not held"
    assert cluster.contents() == ["x", "y"]


def the_fence_of_before_is_refused_to_the_same_member(cluster: Cluster) -> None:
    slot = (cluster.serving(), 0)
    a = cluster.a
    old = a.calls.deliver(slot, batch(a, slot, THREE))
    a.release(slot)
    a.claim(*slot)
    assert calls.read_delivered(a.send(old)).code == "not held"
    assert cluster.contents() == []


def an_orphan_hands_on_nothing(cluster: Cluster) -> None:
    """A member that counts as dead, until it has told that it lives."""
    slot = (cluster.serving(), 0)
    a, b = cluster.a, cluster.member("b#1")
    for name in ("c#1", "d#1"):
        cluster.member(name)
    cluster.client.zadd(a.ops.keys.nodes(), {a.name: 1})
    b.sync()
    assert a.deliver(slot, batch(a, slot, THREE)).code == "not held"
    a.sync()
    assert a.deliver(slot, batch(a, slot, THREE)).code == "serves"


def a_pending_target_hands_nothing_on_and_an_old_one_no_more(cluster: Cluster) -> None:
    old = (cluster.serving(), 0)
    a, b = cluster.a, cluster.member("b#1")
    new = (cluster.target(1 + 1), 0)
    b.claim(new[0], 0, 1)
    b.sync()
    told = b.deliver(new, batch(b, new, [parcel(2, "", "pass"), parcel(3, "x"), parcel(4, "y")], "two"))
    assert (told.code, told.sequence) == ("waits", 2)
    assert b.flip(new[0]) == 1
    assert a.deliver(old, batch(a, old, THREE)).code == "over"
    assert b.deliver(new, batch(b, new, [parcel(3, "x")], "two")).code == "serves"
    assert cluster.contents() == ["x"]


def a_new_session_begins_at_its_own_numbers(cluster: Cluster) -> None:
    slot = (cluster.serving(), 0)
    a = cluster.a
    assert a.deliver(slot, batch(a, slot, [parcel(900, "x")], "one")).sequence == 900
    assert a.deliver(slot, batch(a, slot, [parcel(2, "y")], "two", generation=2)).sequence == 2
    assert cluster.contents() == ["x", "y"]


def a_call_that_was_stuck_comes_after_a_newer_session(cluster: Cluster) -> None:
    """It was given up and sent again; the session ended, another one began, and then it arrives."""
    slot = (cluster.serving(), 0)
    a = cluster.a
    stuck = a.calls.deliver(slot, batch(a, slot, THREE, "one"))
    assert calls.read_delivered(a.send(stuck)).sequence == 4
    assert a.deliver(slot, batch(a, slot, [], "one", ended=True)).code == "serves"
    assert calls.read_delivered(a.send(stuck)).code == "older"
    a.deliver(slot, batch(a, slot, [parcel(2, "new")], "two", generation=2))
    assert calls.read_delivered(a.send(stuck)).code == "older"
    assert cluster.contents() == ["x", "y", "z", "new"]


def a_session_that_was_dropped_is_not_resumed(cluster: Cluster) -> None:
    slot = (cluster.serving(), 0)
    a = cluster.a
    a.deliver(slot, batch(a, slot, THREE))
    assert read_session(a.reached.client.execute_command(*session_of(a, slot))) == ("s", 4, "wss://resume.example/")
    a.deliver(slot, batch(a, slot, [], ended=True))
    assert read_session(a.reached.client.execute_command(*session_of(a, slot))) is None


def session_of(member: Member, slot: tuple[int, int]) -> tuple[calls.Argument, ...]:
    member.client.script_load(calls.script("session").source)
    return member.calls.session(slot)


def the_log_of_an_overlap_is_written_and_goes_with_its_copies(cluster: Cluster) -> None:
    """By the shard of the pending target that the guild will belong to; of what is handed on and of nothing else."""
    old = (cluster.serving(), 0)
    a, b = cluster.a, cluster.member("b#1")
    version = cluster.target(2)
    b.claim(version, 0, 1)
    of = [n << 22 for n in range(4)]
    told = [parcel(2 + n, f"e{n}", guild=of[n], ago_ms=n, replayed=n == 3) for n in range(4)]
    a.deliver(old, batch(a, old, [*told, parcel(6, "", "pass", guild=of[0])]))
    assert [len(cluster.log(version, shard)) for shard in (0, 1)] == [2, 2]
    new = (version, 1)
    b.client.script_load(calls.script("overlap").source)
    log = calls.read_overlapped(b.client.execute_command(*b.calls.overlap(new, b.fences[new], "")))
    assert log.code == "waits"
    assert [(entry.identity, entry.guild, entry.replayed) for entry in log.entries] == [
        ("=e1", of[1], False), ("=e3", of[3], True),
    ]  # fmt: skip
    skip = parcel(2, "e1", "skip", entry=log.entries[0].id)
    assert b.deliver(new, batch(b, new, [skip], "two", gone=[log.entries[1].id])).sequence == 2
    assert cluster.log(version, 1) == []
    assert len(cluster.log(version, 0)) == 2


def who_resumes_hears_all_that_is_left_once_the_log_is_pruned(cluster: Cluster) -> None:
    old = (cluster.serving(), 0)
    a, b = cluster.a, cluster.member("b#1")
    new = (cluster.target(2), 0)
    b.claim(new[0], 0, 1)
    b.sync()
    b.client.script_load(calls.script("overlap").source)

    def ready_ms() -> int:
        return calls.read_overlapped(b.client.execute_command(*b.calls.overlap(new, b.fences[new], ""))).ready_ms

    a.deliver(old, batch(a, old, [parcel(2, "x")]))
    for shard in (0, 1):
        b.deliver((new[0], shard), batch(b, (new[0], shard), [], "two", ready_ago_ms=5))
    b.deliver(new, batch(b, new, [], "two", ready_ago_ms=calls.PRUNED))
    assert ready_ms() > ALL_LEFT, "its target is pending: more may come"
    token = a.deliver(old, batch(a, old, [])).began
    a.deliver(old, batch(a, old, [], reached=token))
    assert b.flip(new[0]) == 1
    b.deliver(new, batch(b, new, [], "two", ready_ago_ms=calls.PRUNED))
    assert ready_ms() == ALL_LEFT
    assert len(cluster.log(*new)) == 1


def a_full_redis_does_all_or_nothing(cluster: Cluster) -> None:
    slot = (cluster.serving(), 0)
    a = cluster.a
    a.deliver(slot, batch(a, slot, [parcel(2, "x")]))
    cluster.client.config_set("maxmemory", "1")
    try:
        with pytest.raises(redis.ResponseError):
            a.deliver(slot, batch(a, slot, THREE, gone=["1-1"]))
    finally:
        cluster.client.config_set("maxmemory", "0")
    assert cluster.saved(slot).startswith("2 ")
    a.deliver(slot, batch(a, slot, THREE))
    assert cluster.contents() == ["x", "y", "z"]


def a_queue_that_is_no_list_takes_nothing_and_costs_nothing(cluster: Cluster) -> None:
    slot = (cluster.serving(), 0)
    a = cluster.a
    cluster.client.set(QUEUE, "no list")
    told = a.deliver(slot, batch(a, slot, THREE))
    assert (told.code, told.odd) == ("unusable", QUEUE)
    cluster.client.delete(QUEUE)
    assert a.deliver(slot, batch(a, slot, THREE)).sequence == 4
    assert cluster.contents() == ["x", "y", "z"]


def a_pod_that_waits_for_work_is_rung(cluster: Cluster) -> None:
    slot = (cluster.serving(), 0)
    a, fleet = cluster.a, FleetKeys()
    pod = Operations(cluster.client, fleet, Rule(0.8, 30_000, 5))
    pod.join("worker#1")
    pod.take("worker#1", 1, (), (QUEUE,))
    a.deliver(slot, batch(a, slot, THREE))
    assert cluster.client.llen(fleet.bell("worker#1")) == 1


def data_that_redis_lost_goes_on_from_what_the_holder_knows(cluster: Cluster) -> None:
    slot = (cluster.serving(), 0)
    a = cluster.a
    a.deliver(slot, batch(a, slot, THREE))
    cluster.client.hdel(f"{a.ops.keys.namespace()}session:{slot[0]}", str(slot[1]))
    again = batch(a, slot, [*THREE, parcel(5, "new")])._replace(base=4)
    told = a.deliver(slot, again)
    assert (told.sequence, told.forgotten) == (5, -1)
    assert cluster.contents() == ["x", "y", "z", "new"]


def writes_that_redis_lost_are_counted(cluster: Cluster) -> None:
    slot = (cluster.serving(), 0)
    a = cluster.a
    key = f"{a.ops.keys.namespace()}session:{slot[0]}"
    first = a.deliver(slot, batch(a, slot, THREE[:1])._replace(base=1))  # after READY nobody has anything yet
    older = cluster.client.hget(key, str(slot[1]))
    counts = [first.forgotten, a.deliver(slot, batch(a, slot, THREE[1:])._replace(base=2)).forgotten]
    cluster.client.hset(key, str(slot[1]), older)
    lost = a.deliver(slot, batch(a, slot, [parcel(5, "new")])._replace(base=4))
    assert (*counts, lost.forgotten, lost.sequence) == (0, 0, 2, 5)
    next_session = batch(a, slot, THREE, "t", generation=2)._replace(base=1)
    assert a.deliver(slot, next_session).forgotten == 0


CLOSED: list[tuple[Callable[[Cluster], None], dict[str, str]]] = [
    (a_batch_that_is_sent_again_is_handed_on_once, {"if sequence > s.sequence then": "if true then"}),
    (a_pod_that_stood_still_is_refused_when_another_has_the_shard,
     {"bind.holder ~= m or bind.fence ~= fence": "false"}),
    (the_fence_of_before_is_refused_to_the_same_member, {" or bind.fence ~= fence then": " then"}),
    (an_orphan_hands_on_nothing, {"local held = bind and (bind.state == 'ready' or bind.state == 'initialising')":
                                  "local held = bind"}),
    (a_pending_target_hands_nothing_on_and_an_old_one_no_more,
     {"if pending and pending.v == v then return active and WAITS or SERVES end": "return SERVES"}),
    (a_pending_target_hands_nothing_on_and_an_old_one_no_more, {"return OVER\nend": "return SERVES\nend"}),
    (a_new_session_begins_at_its_own_numbers, {"local same = saved and saved.id == ARGV[10]": "local same = saved"}),
    (a_call_that_was_stuck_comes_after_a_newer_session, {"(saved.generation > generation or": "(false or"}),
    (a_call_that_was_stuck_comes_after_a_newer_session,
     {"saved.generation == generation and saved.id == NONE": "false"}),
    (a_session_that_was_dropped_is_not_resumed, {"if ended then s.id, s.url = NONE, '' end": ""}),
    (the_log_of_an_overlap_is_written_and_goes_with_its_copies, {"% other.total": "* 0"}),
    (the_log_of_an_overlap_is_written_and_goes_with_its_copies, {"deed ~= 'pass' then": "true then"}),
    (the_log_of_an_overlap_is_written_and_goes_with_its_copies,
     {"elseif deed == 'skip' then call('XDEL', entries(v, shard), where) end": "end"}),
    (the_log_of_an_overlap_is_written_and_goes_with_its_copies,
     {"for i = 18, first - 1 do call('XDEL', entries(v, shard), ARGV[i]) end": ""}),
    (who_resumes_hears_all_that_is_left_once_the_log_is_pruned, {"found == SERVES and ARGV[14]": "ARGV[14]"}),
    (who_resumes_hears_all_that_is_left_once_the_log_is_pruned, {"'ready:' .. shard, 1)": "'ready:' .. shard, 0)"}),
    (a_full_redis_does_all_or_nothing, {"local rung, logs = {}, {}": "call('DEL', 'none') local rung, logs = {}, {}",
                                        "write_session(v, shard, s)\nif found == SERVES and saved":
                                        "call('DEL', 'none')\nif found == SERVES and saved"}),
    (a_queue_that_is_no_list_takes_nothing_and_costs_nothing,
     {"if kind ~= 'none' and kind ~= 'list' then": "if false then"}),
    (a_pod_that_waits_for_work_is_rung, {"while count > 0 and": "while false and"}),
    (data_that_redis_lost_goes_on_from_what_the_holder_knows, {"{sequence = base,": "{sequence = 0,"}),
    (writes_that_redis_lost_are_counted, {"math.max(0, base - saved.sequence)": "0"}),
    (writes_that_redis_lost_are_counted, {"(base > 1 and -1 or 0)": "-1"}),
]  # fmt: skip
SCENES = list(dict.fromkeys(scene for scene, _ in CLOSED))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_holds(server: Client, scene: Callable[[Cluster], None]) -> None:
    scene(Cluster(server))


@pytest.mark.parametrize(("scene", "changes"), CLOSED, ids=[f"{s.__name__}-{n}" for n, (s, _) in enumerate(CLOSED)])
def test_fails_when_written_the_other_way(
    valkey: Client, scene: Callable[[Cluster], None], changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(valkey)
    used = written_otherwise(valkey, calls, "deliver", changes, monkeypatch)
    monkeypatch.setattr("tests.shards.delivering.script", calls.script)
    with pytest.raises((AssertionError, redis.ResponseError, pytest.fail.Exception)):
        scene(cluster)
    assert used == set(changes), "the variant changes nothing: its text has moved"
