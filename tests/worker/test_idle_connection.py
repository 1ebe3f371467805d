"""A connection of kombu's that becomes readable although nothing is awaited on it, or is closed while something is.

kombu goes on to poll the number of what it has closed, so a channel may be told of it after its credit is back. What is
played here in one thread is what greenlets do to each other: a task ends between the poll and what follows it.
"""

from __future__ import annotations

import socket
from queue import Empty
from typing import TYPE_CHECKING, Any

import pytest

from tests.worker.conftest import KEYS
from throttle.scripts import Operations, Rule
from throttle.settings import load_settings
from throttle.worker.driver import Driver
from throttle.worker.take import TRANSPORTS, Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Client


class Pool:
    """The worker that a taking channel asks: a place is always free, and nothing is ever due later."""

    def places(self) -> bool:
        """Whether there is a place."""
        return True

    def runs(self, take_id: int) -> bool:
        """Whether it runs; for an acknowledgement, nothing does any more."""
        return not take_id

    def dismiss(self, take_id: int) -> None:
        """Nothing was made of it."""

    def due_ms(self, eta: Any) -> int | None:
        """None has an ETA."""
        assert eta is None


class Consumer:
    """A channel with credit for one message, of kombu's own or with a driver."""

    def __init__(self, client: Client, *, takes: bool) -> None:
        """Consume from `work`, and wait for the first message."""
        self.client = client
        transport = TRANSPORTS["redis"]
        self.connection = Connection(client.url, transport=transport)
        self.channel: Any = self.connection.default_channel
        self.received: list[Any] = []
        self.channel.basic_qos(0, 1, False)  # noqa: FBT003 - kombu's signature
        self.channel.queue_declare("work")
        self.channel.basic_consume("work", no_ack=False, callback=self.received.append, consumer_tag="work")
        if takes:
            self.driver = Driver(Operations(client, KEYS, Rule(0.8, 30000, 5, 0)), load_settings(fleet=KEYS.fleet))
            assert self.driver.beat()
            self.channel.take_with(self.driver, frozenset(), Pool())
            self.driver.attach(self.channel, None, frozenset())  # type: ignore[arg-type]

    @property
    def cycle(self) -> Any:
        """The poller of kombu."""
        return self.channel.connection.cycle

    def send(self, body: str) -> None:
        """Publish, by a connection of its own."""
        with Connection(self.client.url, transport=TRANSPORTS["redis"]) as other:
            channel = other.default_channel
            channel.basic_publish(channel.prepare_message(body), exchange="", routing_key="work")

    def receive(self) -> str:
        """The next message."""
        while not self.received:
            try:
                self.connection.drain_events(timeout=5)
            except TimeoutError as error:
                pytest.fail(f"nothing came: {error}")
        return self.received[-1].body.decode()

    def acknowledge(self) -> None:
        """Give the credit back."""
        self.received.pop().ack()

    def number(self) -> int:
        """The file descriptor of the connection that waits for messages."""
        return self.channel.client.connection._sock.fileno()


@pytest.fixture(params=[False, True], ids=["kombu", "take"])
def consumer(request: pytest.FixtureRequest, valkey: Client) -> Iterator[Consumer]:
    """One of either kind."""
    made = Consumer(valkey, takes=request.param)
    yield made
    made.connection.close()


def test_one_that_was_closed_while_there_was_no_credit_is_not_read_when_it_is_back(consumer: Consumer) -> None:
    consumer.send("first")
    assert consumer.receive() == "first"
    number = consumer.number()
    consumer.channel.client.connection._sock.shutdown(socket.SHUT_RDWR)  # readable, as when the other end closes it
    consumer.cycle.on_readable(number)
    assert consumer.channel.client.connection._sock is None
    consumer.acknowledge()
    with pytest.raises(Empty):
        consumer.cycle.on_readable(number)
    consumer.send("second")
    assert consumer.receive() == "second"


def test_one_that_was_given_up_while_an_answer_was_due_is_not_read(consumer: Consumer) -> None:
    consumer.cycle.on_poll_start()
    number = consumer.number()
    assert consumer.channel.is_asked
    consumer.channel._in_poll.disconnect()
    with pytest.raises(Empty):
        consumer.cycle.on_readable(number)
    consumer.send("next")
    assert consumer.receive() == "next"
