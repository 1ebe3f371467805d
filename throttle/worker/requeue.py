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

What a lost connection leaves
=============================
Celery forgets what it had fetched and not begun, and nobody acknowledges it: it would stay in `unacked` until the
visibility timeout. What Redis was full for, when kombu was to file it, is nowhere but here. All that is *stranded*
(`doors.Debts`): it goes back to the heads of its queues, newest first, as soon as a connection stands again, and
nothing is fetched before; or by a connection of its own when the worker ends first. What a thread or greenlet waits
with is kept from beginning. What has begun runs on, and its acknowledgement is repeated.

What a crash leaves
===================
A member that dies falls silent and its permits end. Its message is kombu's own affair: in `unacked`, until the
visibility timeout; or nowhere, when the process died between kombu's BRPOP and its second command. Between the denial
and the put-back it is in `unacked` too. What is stranded dies with the process, where Redis has not heard of it. This
gate cannot promise more than kombu does; see docs/limits.md.

Traps: a BRPOP without the bell would let a pod that was rung sleep on for a second. `reject(requeue=True)` of kombu's
Redis transport is the tail, `_do_restore_message` the head. A BRPOP under way when the door shuts still pops; its
answer is read (kombu would leave it, with the message in it) and goes back as well.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from celery.bootsteps import CLOSE, TERMINATE
from celery.worker import state as worker_state
from kombu.transport import redis as kombu_redis

from throttle.worker import routes, telling
from throttle.worker import vocabulary as v
from throttle.worker.doors import BrokerDoor, Debts, Door, RedisDoor, Stranded
from throttle.worker.drain import LEFT_OVER
from throttle.worker.driver import REDIS_ERRORS
from throttle.worker.hosting import Hosting

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self.debts = Debts([], [])
        self._hand_over, c.on_task_request = c.on_task_request, self.on_task_request
        super().__init__(c, **options)
        self._on_lost, c.on_close = c.on_close, self.on_lost

    def start(self, c: Any) -> None:
        """Keep the door of this connection from now on."""
        channel = c.task_consumer.channel
        if isinstance(channel, kombu_redis.Channel):
            self.door = RedisDoor(channel, self.critical, self.is_open, self.driver, self.debts)
            channel.qos.restore_unacked_once = partial(self.on_channel_closed, channel.qos.restore_unacked_once)
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
        for request in self.waiting():
            if not request.acknowledged and request not in self.permits.values():
                self.give_back(request)

    def waiting(self) -> list[Any]:
        """Requests that Celery knows, the oldest first, those that wait for a rate limit after the others."""
        buckets = [bucket for bucket in self.consumer.task_buckets.values() if bucket]
        limited = [request for bucket in buckets for request, _ in list(bucket.contents)]
        return list(dict.fromkeys([*worker_state.requests.values(), *limited]))

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

    # -- the loss of a connection

    def on_lost(self) -> None:
        """Let Celery forget what has not begun, and remember it."""
        before, numbers = self.waiting(), {id(request): number for number, request in self.permits.items()}
        self.strand_unknown()
        self._on_lost()
        for request in before:
            number = numbers.get(id(request))
            with self._beginning:
                runs = request in worker_state.active_requests or (number in self.begun and not self.flushes())
                if runs or request.acknowledged or number in self.given_back:
                    continue
                if number is not None:
                    self.given_back.add(number)
            request.acknowledged = True
            if isinstance(self.door, RedisDoor):
                self.debts.stranded.append(Stranded(request.message.delivery_tag))

    def strand_unknown(self) -> None:
        """Remember messages that Celery does not know: the connection broke while it told others that it has them."""
        if isinstance(self.door, RedisDoor):
            known = {request.message.delivery_tag for request in (*self.waiting(), *self.permits.values())}
            known |= {stranded.tag for stranded in self.debts.stranded}
            self.debts.stranded.extend(Stranded(tag) for tag in self.door.unacknowledged() if tag not in known)

    def on_channel_closed(self, restore: Callable[..., None], stderr: Any = None) -> None:
        """When the worker ends, have kombu give back what is not acknowledged.

        At a loss it would give back what still runs, and end the worker with an error where Redis is away.
        """
        if self.consumer.blueprint.state in (CLOSE, TERMINATE) and self.consumer.connection is not None:
            restore(stderr)

    def shutdown(self, consumer: Any) -> None:
        """Leave; what is still stranded goes back by a connection of its own, if Redis was there a moment ago."""
        super().shutdown(consumer)
        self.strand_unknown()
        stranded = self.debts.stranded
        if stranded and self.driver.leave():
            with contextlib.suppress(*REDIS_ERRORS), consumer.app.connection_for_write() as connection:
                self.debts.settle(connection.channel().qos)
        if stranded:
            logger.error("headroom: %d messages stay in `unacked` until the visibility timeout", len(stranded))
            consumer.controller.exitcode = consumer.controller.exitcode or LEFT_OVER

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
        return self.flushes() or request._apply_result is None or request.acknowledged

    def flushes(self) -> bool:
        """Whether the pool drops what no process has accepted when a connection is lost."""
        return self.consumer.hub is not None and self.consumer.pool.uses_semaphore

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
