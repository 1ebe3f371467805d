# pyright: basic
"""kombu's Redis transport, with TAKE and the bell in place of BRPOP on the queues, and PUT in place of LPUSH.

A channel is one of two things. A *plain* one belongs to a producer, to Flower, to remote control: it publishes with
PUT, which rings a waiting pod, and is kombu's own in all else; it needs no membership. A *taking* one has a driver
attached by the worker's bootstep: what it consumes is taken, and acknowledgements and rejections go to the driver.
kombu's `unacked` is not written then: `held:<member>` is the only truth, and nothing else may redeliver.

Broadcast messages are not taken. They come by publish/subscribe, belong to nobody, and are only counted by kombu.

How it publishes is in `publishing`. A queue whose key in Redis is of another type (somebody wrote there) is passed over
by TAKE and named in the log; the other queues go on.
"""

from __future__ import annotations

import logging
import time
from queue import Empty
from typing import TYPE_CHECKING, Any, Protocol

import redis
from kombu import connection as kombu_connection
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from kombu.utils.json import loads
from redis.exceptions import NoScriptError

from throttle import events
from throttle.scripts import Take
from throttle.worker import telling
from throttle.worker import vocabulary as v
from throttle.worker.broker import BrokerConnection
from throttle.worker.credit import QoS
from throttle.worker.faults import AWAY, told
from throttle.worker.publishing import PuttingChannel, odd
from throttle.worker.state import Held

if TYPE_CHECKING:
    from throttle.scripts import Argument, Operations
    from throttle.worker.driver import Driver

logger = logging.getLogger(__name__)

TELL_S = 60.0
"""A queue that cannot be taken from is named so often."""
DUE_SOON_MS = 500
"""What is due within this is left to Celery's own timer: Redis brings a parked message back when somebody looks, which
may be a second later."""


class Worker(Protocol):
    """What a taking channel asks about its worker."""

    def places(self) -> bool:
        """Whether a process (thread, greenlet) of the pool is free."""
        ...

    def runs(self, take_id: int) -> bool:
        """Whether the task of a take is with the pool."""
        ...

    def dismiss(self, take_id: int) -> None:
        """Forget what was made of a message before it proved unusable."""
        ...

    def due_ms(self, eta: Any) -> int | None:
        """The time in a message's `eta` header, in ms since the epoch; None when it has none."""
        ...


class TakingChannel(PuttingChannel):
    """A channel that publishes with PUT and, once a driver is attached, consumes with TAKE."""

    QoS = QoS
    qos: QoS
    driver: Driver | None = None
    critical: frozenset[str] = frozenset()
    delivered = False
    _rung_ms = 0
    """When the bell was rung that was heard last, server time; 0 once TAKE was answered."""
    _consumed: tuple[str, ...] = ()
    """The queues that are consumed, broadcasts aside; kombu counts them anew each time it is asked."""
    _told_s = -TELL_S

    def take_with(self, driver: Driver, critical: frozenset[str], worker: Worker) -> None:
        """Become a taking channel; `critical` are the names of the queues of the critical lane."""
        self.critical, self.worker = critical, worker
        self._sources: dict[bytes, str] = {}
        self._keys: dict[str, list[str]] = {}
        self.do_restore = False
        self.driver = driver

    # -- the connection that takes

    @property
    def waits(self) -> bool:
        """A TAKE or the wait for the bell is under way."""
        return self.driver is not None and self.driver.state.phase != ""

    @property
    def consumes(self) -> bool:
        """There are queues to take from."""
        return not self.closed and bool(self._consumed)

    def under_way(self, phase: str) -> None:
        """Tell kombu's poller whether an answer is awaited."""
        self._in_poll = self.client.connection if phase else None

    def send(self, *command: Argument) -> None:
        """Write to the connection that kombu polls. It is not tried first: that would wait, and the beats with it."""
        self._brpop_sent_at = time.monotonic()
        self.client.connection.send_command(*command, check_health=False)

    def lanes(self) -> tuple[list[str], list[str]]:
        """Full keys of the critical and the normal queues, each by priority and then in kombu's fair order."""
        lanes: tuple[list[str], list[str]] = ([], [])
        queues = self._queue_cycle.consume(len(self._consumed))
        for step in range(len(self.priority_steps)):
            for queue in queues:
                lanes[0 if queue in self.critical else 1].append(self._keys_of(queue)[step])
        return lanes

    def _keys_of(self, queue: str) -> list[str]:
        """Full keys of a queue, one for each priority; they do not change while the channel lives."""
        if queue not in self._keys:
            keys = [self.global_keyprefix + self._q_for_pri(queue, priority) for priority in self.priority_steps]
            self._keys[queue] = keys
            self._sources |= {key.encode(): queue for key in keys}
        return self._keys[queue]

    def take_command(self, operations: Operations, command: v.SendTake) -> tuple[Argument, ...]:
        """TAKE on the queues of this channel."""
        critical, normal = self.lanes()
        offered = critical if command.critical else []
        return operations.take_command(command.member, command.id, offered, normal, command.acks)

    def has_credit(self) -> bool:
        """Whether a message may be taken now: kombu's credit, and a queue to ask for."""
        credit = virtual.QoS.can_consume(self.qos)
        if not credit or not self.consumes:
            return False
        return self.worker.places() or any(queue not in self.critical for queue in self._consumed)

    def _brpop_start(self, timeout: float | None = None) -> None:
        driver = self.driver
        if driver is None:
            super()._brpop_start(timeout)
            return
        if self.waits:  # kombu asks although an answer is awaited: it knows that the connection was cut
            driver.feed(v.Cut())
        if self.has_credit():
            driver.feed(v.Polled(self.worker.places()))

    def _brpop_read(self, **options: Any) -> bool:
        driver = self.driver
        if driver is None or not self.waits or not self.is_asked:  # kombu's own question, of mingle; or none
            return super()._brpop_read(**options)
        event = self._read(driver)
        self.delivered = False
        driver.feed(event)
        self._flush_brpop_reauth()
        if not self.delivered:
            raise Empty
        return True

    def _read(self, driver: Driver) -> v.Event:
        """The answer to what is under way, as an event."""
        connection, state = self.client.connection, driver.state
        try:
            try:
                answer = self.client.parse_response(connection, "EVALSHA")  # for BRPOP too: its content is not used
            except NoScriptError:
                driver.operations.load("take")
                return v.Unknown(self.has_credit(), self.worker.places())
        except (redis.RedisError, OSError) as error:
            self._rung_ms = 0
            driver.feed(v.Cut())
            connection.disconnect()
            if isinstance(error, redis.ResponseError):  # e.g. READONLY after a fail-over: connect anew, do not crash
                raise redis.ConnectionError(str(error)) from error
            raise
        if state.phase != "take":
            self._rung_ms = rung_ms(answer)
            return v.Rung(self.has_credit(), self.worker.places())
        self._tell_of(driver.operations.parse_odd(answer))
        took = driver.operations.parse_take(state.next_id, answer)
        not_mine = driver.operations.parse_not_mine(answer)
        telling.answered(took, time.monotonic() - self._brpop_sent_at)
        if self._rung_ms and isinstance(took, Take):
            events.emit(events.WOKEN, (driver.clock.now_ms() - self._rung_ms) / 1000)
        self._rung_ms = 0
        return v.Answered(took, self.has_credit(), self.worker.places(), not_mine)

    def _tell_of(self, keys: tuple[bytes, ...]) -> None:
        """Name the queues whose keys are no lists, once in a while."""
        if not keys or time.monotonic() - self._told_s < TELL_S:
            return
        self._told_s = time.monotonic()
        for key in keys:
            logger.error("headroom: nothing is taken from queue %s: %s", self._sources.get(key, "?"), odd(key.decode()))

    # -- delivery

    def deliver(self, delivery: v.Deliver) -> None:
        """Hand a taken message to Celery; one that nobody can read goes to the dead letters, one not due is parked."""
        driver, take = self.driver, delivery.take
        assert driver is not None  # noqa: S101 - only a driver delivers
        self._flush_brpop_reauth()
        queue = self._sources.get(take.source)
        if queue is None or queue not in self.connection._callbacks:  # consumed no more since TAKE was sent
            driver.feed(v.Rejected(take.id, requeue=True))
            return
        self._queue_cycle.rotate(queue)
        telling.took(queue, critical=queue in self.critical, deliveries=take.deliveries)
        self.delivered = False
        try:
            message = loads(take.raw.decode())
            due_ms = self.worker.due_ms((message.get("headers") or {}).get("eta"))
            if due_ms is not None and due_ms > driver.clock.now_ms() + DUE_SOON_MS:
                driver.feed(v.Parked(take.id, due_ms))
                if driver.state.held.get(take.id) != Held(take, delivery.owner):
                    return  # it waits in Redis; else the server's clock says that it is due
            properties = message["properties"]
            properties["delivery_tag"] = str(take.id)
            properties[v.MARK] = {
                "fleet": driver.settings.fleet,
                "member": delivery.owner,
                "take": take.id,
                "queue": queue,
            }
            if take.deliveries:
                properties["delivery_info"]["redelivered"] = True
            self.connection._deliver(message, queue)
        except Exception as error:
            held = driver.state.held.get(take.id)
            if isinstance(error, AWAY) or held is None or held.stage != "delivered":
                raise  # Redis is away, or the task is in the pool: this is not the message's fault
            logger.exception("a message from %s that nobody can handle goes to the dead letters", queue)
            reason = f"{'unusable' if self.delivered else 'undecodable'}: {error!r}"[:200]
            driver.feed(v.Condemned(take.id, reason, told(error)))
            driver.feed(v.Rejected(take.id, requeue=False))
            self.worker.dismiss(take.id)
        self.delivered = True

    def _deliver_fanout_message(self, message: dict[str, Any], exchange: str) -> bool:
        message["properties"][v.MARK] = {"broadcast": exchange}
        return super()._deliver_fanout_message(message, exchange)

    def give_credit(self, take_id: int) -> None:
        """Let kombu forget a message, from any thread."""
        if not self.closed:
            self.qos.forget(str(take_id))

    def carry_over(self, messages: dict[str, Any]) -> None:
        """Count messages of an earlier connection whose tasks still run."""
        for tag, message in messages.items():
            virtual.QoS.append(self.qos, message, tag)

    def _update_queue_cycle(self) -> None:
        super()._update_queue_cycle()
        self._consumed = tuple(self.active_queues)
        if self.driver is not None:
            self.driver.feed(v.Poked())


def rung_ms(answer: Any) -> int:
    """When the bell was rung, from what BRPOP answered; 0 when it timed out, or was rung by the pod itself."""
    token = answer[1] if isinstance(answer, list | tuple) and len(answer) > 1 else b""
    return int(token) if len(token) > 1 and token.isdigit() else 0


class Transport(kombu_redis.Transport):
    """`redis://` and `socket://`."""

    Channel = TakingChannel


class TLSTransport(Transport):
    """`rediss://`."""


class SentinelChannel(TakingChannel, kombu_redis.SentinelChannel):
    """The same through Redis Sentinel."""

    from_transport_options = (*kombu_redis.SentinelChannel.from_transport_options, v.OPTION)


class SentinelTransport(kombu_redis.SentinelTransport):
    """`sentinel://`."""

    Channel = SentinelChannel


TRANSPORTS = {
    scheme: f"{__name__}:{made.__name__}"
    for scheme, made in (("redis", Transport), ("rediss", TLSTransport), ("sentinel", SentinelTransport))
}
"""By the scheme of the broker's address."""

# What a person or Flower reads as the broker's address begins as the one that was configured.
kombu_connection.Connection.resolve_aliases.update({path: scheme for scheme, path in TRANSPORTS.items()})


class Connection(BrokerConnection):
    """Stays with our transport where kombu goes by the scheme of an address, whatever `broker_transport` says.

    It does so for `redis+socket://`, and for each further address of a list when it fails over (all of Sentinel's).
    """

    def _init_params(self, *args: Any, **options: Any) -> None:
        super()._init_params(*args, **options)
        self.transport_cls = TRANSPORTS.get(str(self.transport_cls), self.transport_cls)
