"""Producers that ring no bell are heard: by one member, at once, for few commands."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.support.waiting import wait_until
from throttle.doorkeeper import BUSY_PAUSE_S, LEASE_S, RENEW_S, Doorkeeper
from throttle.keys import Keys
from throttle.scripts import Empty, Operations, Rule, Take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEMBERS = [f"p{n}#1" for n in range(5)]


class Pods:
    """Five members that wait for q (normal) and c (critical), on the real clock, and doorkeepers for them."""

    def __init__(self, server: Any) -> None:
        self.client = server
        self.keys = Keys("d")
        self.ops = Operations(server, self.keys, Rule(0.8, 60000, 5))
        self.ids = dict.fromkeys(MEMBERS, 1)
        self.keepers: list[Doorkeeper] = []
        for member in MEMBERS:
            self.ops.join(member)
        self.wait_anew()

    def take(self, member: str) -> Take | Empty:
        answer = self.ops.take(member, self.ids[member], ["c"], ["q"])
        assert isinstance(answer, Take | Empty)
        if isinstance(answer, Take):
            self.ids[member] += 1
        return answer

    def wait_anew(self) -> None:
        """What idle pods do every second."""
        for member in MEMBERS:
            self.take(member)

    def keeper(self, member: str, **times: float) -> Doorkeeper:
        made = Doorkeeper(self.client, self.ops, lambda: member, **times)
        self.keepers.append(made)
        made.start()
        return made

    def rung(self) -> list[str]:
        return [member for member in MEMBERS if self.client.llen(self.keys.bell(member))]


@pytest.fixture
def pods(server: Any) -> Iterator[Pods]:
    made = Pods(server)
    yield made
    for keeper in made.keepers:
        keeper.stop()


def keeping(keeper: Doorkeeper) -> Callable[[], bool]:
    return lambda: keeper.keeping


def started(pods: Pods, member: str, **times: float) -> Doorkeeper:
    keeper = pods.keeper(member, **times)
    keeper.wanted()
    wait_until(keeping(keeper), timeout_s=2)
    return keeper


def test_a_foreign_message_rings_one_pod_at_once(pods: Pods) -> None:
    """The keeper looks by itself every ten minutes only: each time it was told."""
    started(pods, MEMBERS[0], lease_s=1200, renew_s=600)
    for _ in range(20):
        pods.wait_anew()
        pods.client.lpush("q", "foreign")
        wait_until(pods.rung, timeout_s=5)
        (rung,) = pods.rung()
        take = pods.take(rung)
        assert isinstance(take, Take)
        pods.ops.ack(rung, take.id)


def test_as_many_pods_as_messages_and_no_more_than_slots(pods: Pods) -> None:
    started(pods, MEMBERS[0])
    pods.client.lpush("q", *("m" for _ in range(9)))
    wait_until(lambda: len(pods.rung()) == 4, timeout_s=2)
    pods.client.lpush("c", "urgent")
    wait_until(lambda: len(pods.rung()) == 5, timeout_s=2)


def test_a_message_whose_pod_is_coming_rings_nobody_else(pods: Pods) -> None:
    pods.ops.put("q", "ours")
    found = pods.ops.watch("p0#1", 1000)
    assert found is not None
    assert found.rung == 0
    assert len(pods.rung()) == 1


def test_one_keeper_at_a_time_and_the_next_when_it_is_gone(pods: Pods) -> None:
    first = started(pods, MEMBERS[0])
    second = pods.keeper(MEMBERS[1])
    second.wanted()
    assert pods.ops.watch(MEMBERS[1], 1000) is None
    assert not second.keeping
    first.stop()
    answer = pods.take(MEMBERS[1])
    assert answer == Empty(denied=False, watched=True)
    wait_until(lambda: pods.take(MEMBERS[1]) == Empty(denied=False, watched=False), timeout_s=LEASE_S * 3)
    second.wanted()
    wait_until(keeping(second), timeout_s=2)


def test_an_idle_fleet_pays_the_renewals_alone(pods: Pods) -> None:
    """Counted by the server over a time that the renewals themselves measure."""
    started(pods, MEMBERS[0])

    def scripts() -> int:
        return pods.client.info("commandstats")["cmdstat_evalsha"]["calls"]

    before, began_s = scripts(), time.monotonic()
    wait_until(lambda: scripts() >= before + 5, timeout_s=5)
    assert time.monotonic() - began_s >= 4 * RENEW_S * 0.9


def test_a_full_fleet_pays_little_for_a_flood(pods: Pods) -> None:
    """Each publication is an invalidation, but only few of them are followed by a look."""
    for member in MEMBERS[:4]:
        pods.ops.put("q", "m")
        assert isinstance(pods.take(member), Take)
    pods.ops.put("q", "waits")
    pods.take(MEMBERS[4])
    keeper = started(pods, MEMBERS[0])
    looks = pods.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    began_s, sent = time.monotonic(), 0
    while time.monotonic() - began_s < 3 * BUSY_PAUSE_S:
        pods.client.lpush("q", "flood")
        sent += 1
    looks = pods.client.info("commandstats")["cmdstat_evalsha"]["calls"] - looks
    assert keeper.keeping
    assert looks <= 8 < sent
    assert pods.rung() == []


def test_a_member_that_is_none_does_not_keep(pods: Pods) -> None:
    keeper = Doorkeeper(pods.client, pods.ops, lambda: "")
    pods.keepers.append(keeper)
    keeper.start()
    keeper.wanted()
    assert not pods.client.exists(pods.keys.namespace() + "doorkeeper")
    assert not keeper.keeping


def test_a_server_that_refuses_tracking_is_reported_once(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    server.acl_setuser("poor", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-client|tracking"])
    host = server.connection_pool.connection_kwargs
    with redis.Redis(host=host["host"], port=host["port"], username="poor", password="secret") as poor:  # noqa: S106
        keeper = Doorkeeper(poor, Operations(poor, Keys("d"), Rule(0.8, 60000, 5)), lambda: "a#1")
        keeper.start()
        keeper.wanted()
        wait_until(lambda: "refuses CLIENT TRACKING" in caplog.text, timeout_s=2)
        keeper.stop()
        assert caplog.text.count("refuses") == 1
    server.acl_deluser("poor")
