# pyright: basic
r"""The other gate: the same rule where Celery hands a task to its pool, for what the take does not fit.

`gate="take"` asks the rule in the step that takes the message, and for that stands on much of kombu that nobody
promises to keep. This gate stands on little of it. It serves a kombu that the take was not tried with, so that an
upgrade is no outage.

The protocol
============
Celery has two hooks before a task runs that can stop it. `Task.before_start` may raise Reject, in the pool's process,
when an early acknowledgement has been sent already: the task would be lost. `consumer.on_task_request` is called in the
worker's main process, on every pool, for what comes from a queue, what comes due by Celery's timer and what a rate
limit let through; nothing is acknowledged there. So each request is asked for there:

* **ACQUIRE** a permit, an empty entry of `held:<member>` under a number of our own. One round trip before each task.
* admitted: the request goes on to the pool, marked with its permit. ACK gives the permit back when it has ended in
  whatever way, and keeps the slot for up to a second for the message that kombu fetches next: another pod is not rung
  for a slot that this one is about to fill, and neither is denied.
* denied: the message goes back to the head of its queue, in the form in which kombu filed it. Nothing acknowledges the
  request, and Celery forgets it. The *door* is shut: kombu fetches critical queues only.
* then **KNOCK**: room opens the door and keeps the slot; none registers the member as waiting, in the same script.
  kombu's next BRPOP, a second at most, is on the critical queues and on the member's bell; after it comes the next
  KNOCK. Only one that found room lets kombu fetch normal work again. (For other brokers a thread waits for the bell.)

So a task is put back at most once for each time that a pod was let in and another was faster; a saturated fleet whose
pods each go from one task to the next puts none back, and waiting costs two commands a second and pod. KNOCK comes
after the message is back, so a slot that was freed in between is seen by it.

What a crash leaves
===================
A member that dies falls silent and its permits end. Its message is kombu's own affair: in `unacked`, until the
visibility timeout; or nowhere, when the process died between kombu's BRPOP and its second command. Between the denial
and the put-back it is in `unacked` too. This gate cannot promise more than kombu does; see docs/limits.md.

Traps: a BRPOP without the bell would let a pod that was rung sleep on for a second. `reject(requeue=True)` of kombu's
Redis transport is the tail, `restore_by_tag` the head. A BRPOP under way when the door shuts still pops; its answer is
read (kombu would leave it, with the message in it) and goes back as well.
"""

from __future__ import annotations

import contextlib
import logging
from queue import Empty
from typing import TYPE_CHECKING, Any, Protocol

from celery.worker import state as worker_state
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual

from throttle.keys import Keys
from throttle.worker import vocabulary as v
from throttle.worker.driver import REDIS_ERRORS
from throttle.worker.hosting import Hosting
from throttle.worker.requeue_machine import KnockDue

if TYPE_CHECKING:
    from collections.abc import Callable

    from throttle.worker.requeue_driver import GateDriver

logger = logging.getLogger(__name__)


class Door(Protocol):
    """How a broker's channel is kept from fetching, and takes a message back."""

    hears_bells: bool
    """Whether it waits for the member's bell itself."""

    def waits_for(self) -> list[str]:
        """Full keys of the normal queues that are consumed, where they are in the fleet's Redis; else none."""
        ...

    def put_back(self, message: Any) -> None:
        """Give a delivered message back to its queue, where it came from if the broker can."""
        ...

    def turn(self) -> None:
        """Fetch from the queues that are open now, and from no others."""
        ...


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
        owed: list[str],
    ) -> None:
        """Stand between the channel and its order of queues. `owed`: acknowledgements that did not get through."""
        self._channel, self._critical, self._is_open, self._driver = channel, critical, is_open, driver
        self._owed = owed
        self._acknowledge, channel.qos.ack = channel.qos.ack, self._ack
        self._left_out: list[str] = []
        self._cycle, channel._queue_cycle = channel._queue_cycle, self
        has_credit = channel.qos.can_consume
        channel.qos.can_consume = lambda: bool(channel._in_poll) or has_credit()  # what is under way is always read

    # what kombu asks of its order of queues

    def consume(self, n: int) -> list[str]:
        """The queues that may be fetched from now, in kombu's order; then the bell, if others are left out."""
        self._driver.feed(KnockDue())
        self.settle()
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

    def _ack(self, delivery_tag: str) -> None:
        """Acknowledge; what does not get through is owed, and given up as credit: else this pod would fetch no more."""
        try:
            self._acknowledge(delivery_tag)
        except REDIS_ERRORS:
            self._owed.append(delivery_tag)
            virtual.QoS.ack(self._channel.qos, delivery_tag)

    # what the gate asks

    def settle(self) -> None:
        """Acknowledge what is owed, if Redis answers again. One round trip for each."""
        with contextlib.suppress(*REDIS_ERRORS):
            while self._owed:
                self._channel.qos._remove_from_indices(self._owed[0]).execute()
                del self._owed[0]

    def waits_for(self) -> list[str]:
        """See `Door`."""
        channel = self._channel
        return [
            channel.global_keyprefix + channel._q_for_pri(queue, priority)
            for queue in channel.active_queues
            if queue not in self._critical
            for priority in channel.priority_steps
        ]

    def put_back(self, message: Any) -> None:
        """To the head. Two round trips."""
        self._channel.qos.restore_by_tag(message.delivery_tag)
        self._channel.qos.ack(message.delivery_tag)

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


class RequeueGate(Hosting):
    """The consumer's side of the gate."""

    driver: GateDriver

    def __init__(self, c: Any, **options: Any) -> None:
        """Stand between the consumer and its pool."""
        self.permits: dict[int, Any] = {}
        """Requests that were let in and have not ended."""
        self.door: Door | None = None
        self.owed: list[str] = []
        self._hand_over, c.on_task_request = c.on_task_request, self.on_task_request
        super().__init__(c, **options)

    def start(self, c: Any) -> None:
        """Keep the door of this connection from now on."""
        channel = c.task_consumer.channel
        if isinstance(channel, kombu_redis.Channel):
            self.door = RedisDoor(channel, self.critical, self.is_open, self.driver, self.owed)
            self.join_poller(channel.connection.cycle)
        else:
            self.door = BrokerDoor(c.task_consumer, self.is_open)
        self.driver.queues, self.driver.host = self.door, self
        self.driver.feed(v.Reopened(frozenset(n for n, request in self.permits.items() if not self.is_over(request))))
        self.have_stand_in()
        self.send_events_once()

    def is_open(self, queue: str) -> bool:
        """Whether messages of a queue may be fetched now. A critical one not for a pod that has no place for it."""
        state = self.driver.state
        return state.admits and (self.places() if queue in self.critical else not state.shut)

    def info(self, consumer: Any) -> dict[str, Any]:
        """What `celery inspect stats` shows."""
        shown = super().info(consumer)
        shown["throttle"] |= {"gate": "requeue", "shut": self.driver.state.shut, "put_back": self.driver.put_back}
        return shown

    # -- what the loop notices

    def wake(self) -> None:
        """Make the loop turn once. From any thread. That of a broker without poller turns by itself, within seconds."""
        super().wake()
        if self.consumer.hub is None:
            self.consumer.call_soon(self.tick)

    def tick(self) -> None:
        """Let kombu fetch what may be fetched; give back permits of requests that ended without a word of it."""
        for number, request in list(self.permits.items()):
            if self.is_over(request):
                self.after_end(number)
        if self.door is not None:
            self.door.turn()

    def is_over(self, request: Any) -> bool:
        """Whether neither Celery nor the pool knows a request any more (it was revoked, or dropped at a reconnect)."""
        if request in worker_state.reserved_requests or request in worker_state.active_requests:
            return False
        flushes = self.consumer.hub is not None and self.consumer.pool.uses_semaphore
        return flushes or request._apply_result is None or request.acknowledged

    def unfit(self, request: Any, number: int, error: Exception) -> None:
        """Let kombu drop the message, as Celery does with those it cannot run, and give the permit back."""
        logger.error("dropped: %s[%s]: %r", request.name, request.id, error)
        request.reject(requeue=False)
        worker_state.task_ready(request)
        self.after_end(number)

    def after_end(self, number: int) -> None:
        """Give the permit back, once, and let the loop fetch the next message."""
        if self.permits.pop(number, None) is not None:
            self.driver.feed(v.Finished(number, follows=not self.driver.state.shut))
            self.wake()

    # -- the gate

    def on_task_request(self, request: Any) -> None:
        """Let a request through to the pool with a permit, or put its message back."""
        lane = self.lane(request.delivery_info)
        properties = request.request_dict["properties"]
        if lane == "broadcast":  # it belongs to every pod, and is nobody's to refuse
            properties[v.MARK] = {"broadcast": request.delivery_info.get("exchange", "")}
            self._hand_over(request)
            return
        number = self.driver.request(critical=lane == "critical")
        if number is None:
            self.refuse(request)
            return
        state = self.driver.state
        properties[v.MARK] = {"fleet": self.driver.settings.fleet, "member": state.member, "permit": number}
        self.permits[number] = request
        self.listen(request, number)
        self._hand_over(request)

    def refuse(self, request: Any) -> None:
        """Put the message back and let Celery forget the request; nothing acknowledges it."""
        request.acknowledged = True
        worker_state.task_ready(request)
        if self.door is not None:
            self.door.put_back(request.message)
            self.door.turn()
        logger.debug("task %s[%s] was not let in and is back in its queue", request.name, request.id)
        self.driver.back()

    def lane(self, delivery: dict[str, Any]) -> str:
        """Lane of the queue that a message was routed to: normal, critical or broadcast."""
        exchange, key = delivery.get("exchange") or "", delivery.get("routing_key") or ""
        name = key
        for queue in self.consumer.app.amqp.queues.consume_from.values():
            if exchange and queue.exchange.name == exchange:
                if queue.exchange.type == "fanout":
                    return "broadcast"
                if queue.routing_key == key:
                    name = queue.name
        return "critical" if name in self.critical else "normal"
