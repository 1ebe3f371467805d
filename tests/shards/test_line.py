"""A guild's line by itself, on each kind of server: when its task is lost, and the same written otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from tasks.shards.delivery import calls
from tasks.shards.delivery.calls import Begin, Parcel
from tests.shards.delivering import QUEUE, Cluster, batch, written_otherwise
from throttle.answers import Take
from throttle.keys import Keys as FleetKeys
from throttle.scripts import Operations, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.servers import Client

GUILD = 7
RULE = Rule(0.8, 30_000, 5)


class Line:
    """A guild's line, and the fleet's pod that takes what starts the work on it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.slot, self.sequence = cluster, (cluster.serving(), 0), 1
        self.fleet = Operations(cluster.client, FleetKeys(), RULE)
        self.fleet.join("w#1")

    def put(self) -> list[str]:
        """One event more; the owners that are started for it."""
        self.sequence += 1
        name = f"owner-{self.sequence}"
        message = f"event {self.sequence}".encode()
        event = Parcel(self.sequence, "line", QUEUE, guild=GUILD, message=message, starter=name.encode(), owner=name)
        before = self.waiting()
        self.cluster.a.deliver(self.slot, batch(self.cluster.a, self.slot, [event]))
        return [name] * (self.waiting() - before)

    def waiting(self) -> int:
        """Tasks in the queue."""
        return self.cluster.client.llen(QUEUE)

    def take(self) -> int:
        """The pod takes what is next in the queue: its take."""
        taken = self.fleet.take("w#1", 1, (), (QUEUE,))
        assert isinstance(taken, Take)
        return taken.id

    def waits_since(self, ms: int) -> None:
        """As if the line's task had been in its queue for so long."""
        at = f"{self.cluster.a.ops.keys.namespace()}turn:{GUILD}"
        since = int(cast("bytes", self.cluster.client.hget(at, "since")))
        self.cluster.client.hset(at, "since", since - ms)

    def turn(self, owner: str, turn: int = 0, begin: Begin = "begin", take: int = 0) -> tuple[int, int, bytes | None]:
        """TURN by hand, of the pod that holds the task by this take."""
        held = (self.fleet.keys.held("w#1"), str(take)) if take else ("", "")
        command = self.cluster.a.calls.turn(GUILD, owner, turn, 0, begin=begin, held=held)
        self.cluster.client.script_load(calls.script("turn").source)
        return calls.read_turn(cast("Any", self.cluster.client).execute_command(*command))


def a_task_that_is_lost_has_another_with_the_next_event(cluster: Cluster) -> None:
    """Its message is held no more, and it has not said that it is done: it was killed, or is a dead letter."""
    line = Line(cluster)
    (first,) = line.put()
    assert line.put() == [], "it waits in its queue"
    take = line.take()
    assert line.turn(first, take=take) == (1, 1, b"event 2")
    assert line.put() == [], "it is at work"
    line.fleet.ack("w#1", take)
    (second,) = line.put()
    assert line.put() == [], "one is enough"
    assert line.turn(first)[0] == 0, "it has the line no more, if it comes after all"
    assert line.turn(second) == (2, 2, b"event 2"), "how often the head was begun is remembered"
    assert line.put() == [], "of how the second one came nothing is known"


def a_task_that_is_in_its_queue_again_is_not_lost(cluster: Cluster) -> None:
    line = Line(cluster)
    (first,) = line.put()
    take = line.take()
    turn, _, _ = line.turn(first, take=take)
    line.turn(first, turn, "queued", take)
    line.fleet.ack("w#1", take)
    assert line.put() == []


def a_task_of_another_fleet_is_not_judged(cluster: Cluster) -> None:
    line = Line(cluster)
    (first,) = line.put()
    line.fleet = Operations(cluster.client, FleetKeys("other"), RULE)
    line.turn(first, take=99)
    assert line.put() == []


def a_task_that_was_purged_has_another_a_minute_later(cluster: Cluster) -> None:
    """Not sooner, when it may have been taken in this moment; and not while there is something in the queue."""
    line = Line(cluster)
    line.put()
    cluster.client.delete(QUEUE)
    assert line.put() == []
    line.waits_since(61_000)
    (second,) = line.put()
    line.waits_since(61_000)
    assert line.put() == [], "it is in its queue"
    assert line.turn(second)[1:] == (1, b"event 2")
    cluster.client.delete(QUEUE)
    assert line.put() == [], "nothing is known of how it works"


LOST = "and not lost(at, queue, fleet)"
PURGED = "now_ms - since > QUEUED_MS and call('LLEN', queue) == 0"
CLOSED: list[tuple[Callable[[Cluster], None], str, dict[str, str]]] = [
    (a_task_that_is_lost_has_another_with_the_next_event, "deliver", {LOST: ""}),
    (
        a_task_that_is_lost_has_another_with_the_next_event,
        "deliver",
        {f"if call('EXISTS', at) == 1 {LOST} then return false end": ""},
    ),
    (a_task_that_is_lost_has_another_with_the_next_event, "deliver", {"call('HSET', at, 'owner', owner)": ""}),
    (a_task_that_is_lost_has_another_with_the_next_event, "turn", {"at, 'since', 'held', 'take')": "at, 'since')"}),
    (
        a_task_that_is_lost_has_another_with_the_next_event,
        "turn",
        {"then call('HSET', at, 'held', held, 'take', take) end": "then end"},
    ),
    (a_task_that_is_in_its_queue_again_is_not_lost, "turn", {"elseif begin == -1 then": "elseif false then"}),
    (a_task_that_was_purged_has_another_a_minute_later, "deliver", {PURGED: "call('LLEN', queue) == 0"}),
    (a_task_that_was_purged_has_another_a_minute_later, "deliver", {PURGED: "now_ms - since > QUEUED_MS"}),
    (a_task_that_was_purged_has_another_a_minute_later, "deliver", {PURGED: "false"}),
    (a_task_that_was_purged_has_another_a_minute_later, "turn", {"call('HDEL', at, 'since', ": "call('HDEL', at, "}),
    (a_task_of_another_fleet_is_not_judged, "deliver", {"held:sub(1, #fleet) == fleet and": ""}),
]
SCENES = list(dict.fromkeys(scene for scene, *_ in CLOSED))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_holds(server: Client, scene: Callable[[Cluster], None]) -> None:
    scene(Cluster(server))


@pytest.mark.parametrize(("scene", "script", "change"), CLOSED)
def test_fails_when_written_the_other_way(
    valkey: Client,
    monkeypatch: pytest.MonkeyPatch,
    scene: Callable[[Cluster], None],
    script: str,
    change: dict[str, str],
) -> None:
    cluster = Cluster(valkey)
    used = written_otherwise(valkey, calls, script, change, monkeypatch)
    monkeypatch.setattr("tests.shards.delivering.script", calls.script)
    with pytest.raises((AssertionError, ValueError)):
        scene(cluster)
    assert used == set(change), "the variant changes nothing: its text has moved"
