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
from typing import TYPE_CHECKING, Any

from celery.worker import state as worker_state
from kombu.transport import redis as kombu_redis

from throttle.worker import routes, telling
from throttle.worker import vocabulary as v
from throttle.worker.doors import BrokerDoor, Door, RedisDoor
from throttle.worker.driver import REDIS_ERRORS
from throttle.worker.hosting import Hosting

if TYPE_CHECKING:
    from throttle.worker.requeue_driver import GateDriver

logger = logging.getLogger(__name__)


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
        self.settle_in()
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

    # -- what a drain asks

    def fetches(self) -> bool:
        """See `Shedding`; here it is a BRPOP that is under way, for a second at most."""
        return super().fetches() or (self.door is not None and self.door.fetches())

    def known(self) -> dict[int, Any]:
        """Requests by permit."""
        return dict(self.permits)

    def shed_now(self) -> None:
        """What waits for Celery's timer or a rate limit has no permit, and goes back as well, whenever it came."""
        super().shed_now()
        for request in list(worker_state.requests.values()):
            if not request.acknowledged and request not in self.permits.values():
                self.give_back(request)

    def give_back(self, request: Any) -> None:
        """Nothing acknowledges it any more; its message goes to the head, as far as the broker can."""
        request.acknowledged = True
        worker_state.task_ready(request)
        if self.door is not None:
            self.door.put_back(request.message)

    def abandon(self) -> None:
        """What runs is kombu's to give back."""
        for number, request in self.permits.items():
            if number in self.begun and not request.acknowledged:
                with contextlib.suppress(*REDIS_ERRORS):
                    self.give_back(request)

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

    def condemn(self, request: Any, number: int, reason: str, text: str) -> None:  # noqa: ARG002 - of both gates
        """Make a dead letter of the message, where the broker is Redis; then there is nothing to acknowledge."""
        if isinstance(self.door, RedisDoor):
            self.door.bury(request, routes.name_in(self.consumer.app, request.delivery_info), reason, text)

    def give_back_overrun(self, request: Any, number: int, text: str) -> None:  # noqa: ARG002 - of both gates
        """To the head of its queue, by kombu. Nothing is counted."""
        if self.door is not None:
            self.door.put_back(request.message)

    def after_end(self, number: int) -> None:
        """Give the permit back, once, and let the loop fetch the next message."""
        if self.permits.pop(number, None) is not None:
            self.driver.feed(v.Finished(number, follows=not self.driver.state.shut))
            self.wake()

    # -- the gate

    def on_task_request(self, request: Any) -> None:
        """Let a request through to the pool with a permit, or put its message back."""
        if request.acknowledged:  # it went back while it was not due: the pod drains
            return
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
        telling.took(telling.queue_of(request), critical=lane == "critical", deliveries=0)
        self.listen(request, number)
        self._hand_over(request)

    def refuse(self, request: Any) -> None:
        """Put the message back and let Celery forget the request; nothing acknowledges it."""
        self.give_back(request)
        if self.door is not None:
            self.door.turn()
        logger.debug("task %s[%s] was not let in and is back in its queue", request.name, request.id)
        self.driver.back()

    def lane(self, delivery: dict[str, Any]) -> str:
        """Lane of the queue that a message was routed to: normal, critical or broadcast."""
        app, exchange = self.consumer.app, delivery.get("exchange")
        queues = app.amqp.queues.consume_from.values()
        if exchange and any(q.exchange.name == exchange and q.exchange.type == "fanout" for q in queues):
            return "broadcast"
        return "critical" if routes.name_in(app, delivery) in self.critical else "normal"
