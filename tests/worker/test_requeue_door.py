# pyright: basic
"""kombu's own channel behind the door of the requeue gate: what it fetches, and what ends its wait."""

from __future__ import annotations

from queue import Empty
from typing import TYPE_CHECKING, Any

import pytest
from kombu.connection import Connection

from tests.worker.conftest import KEYS
from throttle.scripts import Operations, Rule
from throttle.settings import load_settings
from throttle.worker.doors import Debts, RedisDoor
from throttle.worker.requeue_driver import GateDriver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Client

PREFIX = "shop:"
CRITICAL = frozenset({"urgent"})


class Pod:
    """A member `pod` with a channel on the queues `work` and `urgent`, beside a member that can fill the fleet."""

    def __init__(self, client: Client) -> None:
        """Join both."""
        keys = KEYS.__class__(KEYS.fleet, PREFIX)
        self.operations = Operations(client, keys, Rule(0.8, 30000, 5, 0))
        self.operations.join("other#1")
        self.driver = GateDriver(self.operations, load_settings(pod="pod"))
        assert self.driver.beat()
        self.connection = Connection(client.url, transport_options={"global_keyprefix": PREFIX})
        self.channel: Any = self.connection.channel()
        self.delivered: list[str] = []
        for queue in ("work", "urgent"):
            self.channel.queue_declare(queue)
            self.channel.basic_consume(queue, no_ack=False, callback=self.received, consumer_tag=queue)
        self.places = 1
        self.door = RedisDoor(self.channel, CRITICAL, self.is_open, self.driver, Debts([], []))
        self.driver.queues = self.door

    def received(self, message: Any) -> None:
        """Ask for a permit as the gate does, and put back what is denied."""
        queue = message.delivery_info["routing_key"]
        if self.driver.request(critical=queue in CRITICAL) is None:
            self.door.put_back(message)
            self.driver.back()
        else:
            self.delivered.append(message.body.decode())

    def is_open(self, queue: str) -> bool:
        """As the gate says it."""
        state = self.driver.state
        return state.admits and (self.places > 0 if queue in CRITICAL else not state.shut)

    def send(self, queue: str, body: str) -> None:
        """Publish."""
        self.channel.basic_publish(self.channel.prepare_message(body), exchange="", routing_key=queue)

    def ask(self) -> None:
        """Send a BRPOP that waits for ever."""
        if self.channel.client.connection is None:
            self.channel.client.connection = self.channel.client.connection_pool.get_connection()
        self.channel._brpop_start(timeout=0)

    def fetch(self) -> bool:
        """A BRPOP and its answer, which must be a message."""
        self.ask()
        return self.channel._brpop_read()


@pytest.fixture
def pod(valkey: Client) -> Iterator[Pod]:
    """An open door."""
    made = Pod(valkey)
    yield made
    made.connection.close()


def fill(pod: Pod) -> None:
    """The other member holds the one slot."""
    assert pod.operations.acquire("other#1", 1)


def test_an_open_door_leaves_kombu_its_order(pod: Pod) -> None:
    assert sorted(pod.door.consume(2)) == ["urgent", "work"]


def test_a_denied_message_is_at_the_head_again_and_only_critical_ones_are_fetched(pod: Pod) -> None:
    fill(pod)
    for body in ("first", "second"):
        pod.send("work", body)
    assert pod.fetch()
    assert pod.delivered == []
    assert pod.operations.client.llen(PREFIX + "work") == len(("first", "second"))
    assert not pod.operations.client.keys(PREFIX + "unacked*")
    assert pod.channel.qos.can_consume()
    assert pod.door.consume(2) == ["urgent", KEYS.bell(pod.driver.state.member)]
    pod.send("urgent", "now")
    assert pod.fetch()
    assert pod.delivered == ["now"]


def test_a_bell_ends_the_wait_at_once_and_the_denied_message_is_fetched_first(pod: Pod) -> None:
    """The wait has no end of its own: a bell that kombu does not hear fails this test by its limit."""
    fill(pod)
    for body in ("first", "second"):
        pod.send("work", body)
    assert pod.fetch()
    assert pod.driver.state.shut
    pod.ask()
    assert pod.operations.ack("other#1", 1)
    with pytest.raises(Empty):
        pod.channel._brpop_read()
    assert pod.fetch()
    assert pod.delivered == ["first"]
    assert not pod.driver.state.shut


def test_a_place_that_became_free_ends_a_wait_without_the_critical_queues(pod: Pod) -> None:
    pod.places = 0
    assert pod.door.consume(2) == ["work", KEYS.bell(pod.driver.state.member)]
    pod.ask()
    pod.door.turn()
    assert not pod.operations.client.keys(pod.operations.keys.bell("*"))
    pod.places = 1
    pod.door.turn()
    with pytest.raises(Empty):
        pod.channel._brpop_read()
    assert len(pod.door.consume(2)) == len(("urgent", "work"))


def test_who_is_no_member_fetches_nothing(pod: Pod) -> None:
    pod.driver.drain()
    assert pod.door.consume(2) == []
