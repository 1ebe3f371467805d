# pyright: basic
"""How the requeue gate keeps a broker from fetching, and gives a message back: doors, one for each kind of broker."""

from __future__ import annotations

import contextlib
from queue import Empty
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kombu.transport import virtual
from kombu.utils.json import dumps, loads

from throttle.dead import bury
from throttle.keys import Keys
from throttle.worker.driver import REDIS_ERRORS
from throttle.worker.requeue_machine import KnockDue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from throttle.worker.requeue_driver import GateDriver


class Door(Protocol):
    """How a broker's channel is kept from fetching, and takes a message back."""

    hears_bells: bool
    """Whether it waits for the member's bell itself."""

    def waits_for(self) -> list[str]:
        """Full keys of the normal queues that are consumed, where they are in the fleet's Redis; else none."""
        ...

    def fetches(self) -> bool:
        """Whether a message may be on its way that would go back before those that were fetched earlier."""
        ...

    def put_back(self, message: Any) -> None:
        """Give a delivered message back to its queue, where it came from if the broker can."""
        ...

    def turn(self) -> None:
        """Fetch from the queues that are open now, and from no others."""
        ...


class Stranded(NamedTuple):
    """A message to be given back: it was fetched and not begun when Redis was lost, or full."""

    tag: str
    """Under which kombu files it in `unacked`."""
    filed: tuple[Any, str, str] | None = None
    """What it would file (message, exchange, routing key), where it may not be there: kombu has the only copy else."""


class Debts(NamedTuple):
    """What Redis is to be told and was not, the oldest first."""

    owed: list[str]
    """Delivery tags to be acknowledged: their tasks have ended."""
    stranded: list[Stranded]

    def settle(self, qos: Any) -> None:
        """Tell it. Two round trips or three for each; raises one of `REDIS_ERRORS`, and what was not told stays."""
        while self.stranded:
            _give_back(qos, self.stranded[-1])
            del self.stranded[-1]
        while self.owed:
            qos._remove_from_indices(self.owed[0]).execute()
            del self.owed[0]


def _give_back(qos: Any, stranded: Stranded) -> None:
    """Once, whoever else gives back what is in `unacked`; twice where the answer to the first time was lost."""

    def transaction(pipe: Any) -> None:
        known = pipe.hget(qos.unacked_key, stranded.tag)
        filed = loads(known) if known else stranded.filed
        pipe.multi()
        qos._remove_from_indices(stranded.tag, pipe)
        if filed:
            qos.channel._do_restore_message(*filed, pipe)

    with qos.channel.conn_or_acquire() as client:
        client.transaction(transaction, qos.unacked_key)


class RedisDoor:
    """kombu's Redis channel. It asks which queues are next before each BRPOP; those behind the door are left out.

    In their place comes the member's bell, as if it were a queue. Its token is no message: it ends the BRPOP as its
    timeout would.
    """

    hears_bells = True

    def __init__(
        self,
        channel: Any,
        critical: frozenset[str],
        is_open: Callable[[str], bool],
        driver: GateDriver,
        debts: Debts,
    ) -> None:
        """Stand between the channel and its order of queues. `debts`: of earlier connections."""
        self._channel, self._critical, self._is_open, self._driver = channel, critical, is_open, driver
        self._debts = debts
        self._acknowledge, channel.qos.ack = channel.qos.ack, self._ack
        self._file, channel.qos.append = channel.qos.append, self._append
        self._left_out: list[str] = []
        self._cycle, channel._queue_cycle = channel._queue_cycle, self
        has_credit = channel.qos.can_consume
        channel.qos.can_consume = lambda: bool(channel._in_poll) or has_credit()  # what is under way is always read

    # what kombu asks of its order of queues

    def consume(self, n: int) -> list[str]:
        """The queues that may be fetched from now, in kombu's order; then the bell, if others are left out."""
        self._driver.feed(KnockDue())
        self.settle()
        if self._debts.stranded:  # it would fetch more of what it cannot file, or give back
            return []
        queues = self._cycle.consume(n)
        opened = [queue for queue in queues if self._is_open(queue)]
        self._left_out = [queue for queue in queues if queue not in opened]
        return [*opened, self._bell()] if self._left_out and self._driver.state.admits else opened

    def rotate(self, queue: str) -> None:
        """Note from which queue a message came; raises Empty for the bell, as kombu does when none came."""
        if queue == self._bell():
            raise Empty
        self._cycle.rotate(queue)

    def _bell(self) -> str:
        """Without kombu's own prefix."""
        return Keys(self._driver.settings.fleet).bell(self._driver.state.member)

    def __getattr__(self, name: str) -> Any:
        """All else is kombu's own."""
        return getattr(self._cycle, name)

    def _append(self, message: Any, delivery_tag: str) -> None:
        """File what was fetched. Where Redis does not take it the connection ends, as kombu has it; it is stranded."""
        try:
            self._file(message, delivery_tag)
        except REDIS_ERRORS:
            routed = message.delivery_info
            filed = (message._raw, routed["exchange"], routed["routing_key"])
            self._debts.stranded.append(Stranded(delivery_tag, filed))
            raise

    def _ack(self, delivery_tag: str) -> None:
        """Acknowledge; what does not get through is owed, and given up as credit: else this pod would fetch no more."""
        with self._or_later(delivery_tag, self._debts.owed, delivery_tag):
            self._acknowledge(delivery_tag)

    @contextlib.contextmanager
    def _or_later(self, delivery_tag: str, debts: list[Any], debt: Any) -> Iterator[None]:
        """Tell Redis of a message; what it does not hear becomes a debt, and takes no credit any more."""
        try:
            yield
        except (*REDIS_ERRORS, AttributeError) as error:
            if isinstance(error, AttributeError) and not self._channel.closed:
                raise
            debts.append(debt)
            virtual.QoS.ack(self._channel.qos, delivery_tag)

    # what the gate asks

    def settle(self) -> None:
        """Acknowledge what is owed and give back what is stranded, if Redis answers again."""
        with contextlib.suppress(*REDIS_ERRORS):
            self._debts.settle(self._channel.qos)

    def waits_for(self) -> list[str]:
        """See `Door`."""
        channel = self._channel
        return [
            channel.global_keyprefix + channel._q_for_pri(queue, priority)
            for queue in channel.active_queues
            if queue not in self._critical
            for priority in channel.priority_steps
        ]

    def unacknowledged(self) -> list[str]:
        """Delivery tags of what came by this connection and is neither acknowledged nor back, the oldest first."""
        qos = self._channel.qos
        return [tag for tag in list(qos._delivered) if tag not in qos._dirty]

    def fetches(self) -> bool:
        """Whether a BRPOP is under way: what it brings goes to the head first, as it is the newest."""
        return bool(self._channel._in_poll)

    def put_back(self, message: Any) -> None:
        """To the head. Two round trips; by the next connection, if this one is lost."""
        stranded = Stranded(message.delivery_tag)
        with self._or_later(stranded.tag, self._debts.stranded, stranded):
            _give_back(self._channel.qos, stranded)
            self._acknowledge(stranded.tag)

    def bury(self, request: Any, queue: str, reason: str, text: str) -> None:
        """Make a dead letter of a delivered message. Two round trips; while Redis is away it stays kombu's."""
        channel, tag = self._channel, request.message.delivery_tag
        with contextlib.suppress(*REDIS_ERRORS), channel.conn_or_acquire() as client:
            filed = client.hget(channel.unacked_key, tag)
            if filed is None:
                return
            prefix = channel.global_keyprefix
            priority = channel._get_message_priority(loads(filed)[0], reverse=False)
            source = prefix + channel._q_for_pri(queue, priority)
            held = (prefix + channel.unacked_key, prefix + channel.unacked_index_key, tag)
            letter = (source, dumps(loads(filed)[0]).encode(), reason, text)
            bury(self._driver.operations, self._driver.state.member, held, letter)

    def turn(self) -> None:
        """End a BRPOP that leaves out what is open by now: a place became free, or the fleet knows this pod again."""
        if self._channel._in_poll and any(map(self._is_open, self._left_out)):
            self._left_out = []
            with contextlib.suppress(*REDIS_ERRORS):
                self._driver.operations.poke(self._driver.state.member)


class BrokerDoor:
    """Any other broker, by what kombu promises of all: queues are cancelled and consumed again."""

    hears_bells = False

    def __init__(self, consumer: Any, is_open: Callable[[str], bool]) -> None:
        """Begin with all of them open."""
        self._consumer, self._is_open = consumer, is_open
        self._cancelled: list[Any] = []

    def waits_for(self) -> list[str]:
        """None: they are not in the fleet's Redis."""
        return []

    def fetches(self) -> bool:
        """No matter: such a broker knows each message's place."""
        return False

    def put_back(self, message: Any) -> None:
        """As the broker does it; RabbitMQ to where it was."""
        message.requeue()

    def turn(self) -> None:
        """Cancel what is closed and consume what is open again."""
        closed = [queue for queue in self._consumer.queues if not self._is_open(queue.name)]
        for queue in closed:
            self._consumer.cancel_by_queue(queue.name)
        opened = [queue for queue in self._cancelled if self._is_open(queue.name)]
        self._cancelled = [queue for queue in (*self._cancelled, *closed) if queue not in opened]
        for queue in opened:
            self._consumer.add_queue(queue)
        if opened:
            self._consumer.consume()
