# pyright: basic
"""A contract with Celery and kombu: fails on the day on which something that a gate stands on moves."""

from __future__ import annotations

import inspect
from typing import Any

import celery
import kombu
import pytest
from celery.app import amqp as celery_amqp
from celery.worker import loops, strategy
from celery.worker import request as celery_request
from celery.worker.consumer import consumer as celery_consumer
from kombu.transport import redis as kombu_redis

from throttle.errors import ConfigurationError
from throttle.worker import internals


def test_everything_is_where_it_was() -> None:
    assert {part: internals.moved(part) for part in internals.INTERNALS} == {"take": [], "requeue": [], "beat": []}


def test_the_versions_are_those_that_were_tried() -> None:
    assert celery.VERSION[:2] == (5, 7)
    assert kombu.VERSION[:2] == (5, 7)


GONE = internals.Internal("kombu.transport.redis", "Channel._gone", None, "for this test")
OTHER = internals.Internal("kombu.transport.redis", "Channel._put", ("self",), "for this test")


def move(monkeypatch: pytest.MonkeyPatch, *gates: str) -> None:
    """Pretend that these gates need what is not there."""
    for gate in gates:
        monkeypatch.setitem(internals.INTERNALS, gate, (GONE, OTHER))


def test_what_has_moved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    move(monkeypatch, "take")
    assert internals.moved("take") == [
        "kombu.transport.redis.Channel._gone is gone",
        "kombu.transport.redis.Channel._put has the parameters self, queue, message, kwargs",
    ]
    with pytest.raises(ConfigurationError, match='gate="take" does not fit celery'):
        internals.choose("take")


def test_where_the_take_does_not_fit_the_other_gate_is_used_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert internals.choose(None) == ("take", "")
    assert internals.choose("requeue") == ("requeue", "")
    move(monkeypatch, "take")
    assert internals.choose(None) == ("requeue", "kombu.transport.redis.Channel._gone is gone")
    assert internals.choose("requeue") == ("requeue", "")


def test_where_neither_gate_fits_the_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    move(monkeypatch, "take", "requeue")
    for gate in (None, "take", "requeue"):
        with pytest.raises(ConfigurationError, match=r"Channel._gone is gone; allowed are versions"):
            internals.choose(gate)


def test_a_newer_version_is_not_trusted_with_the_take_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kombu, "VERSION", (5, 8, 0))
    monkeypatch.setattr(kombu, "__version__", "5.8.0")
    assert internals.choose(None) == ("requeue", "kombu 5.8.0 is newer than 5.7")
    assert internals.choose("take") == ("take", "")


def test_a_version_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(celery, "VERSION", (5, 6, 9))
    with pytest.raises(ConfigurationError, match=r"is too old; allowed is 5.7 or newer"):
        internals.choose(None)


def source(thing: Any) -> str:
    """Source text, in one line."""
    return " ".join(inspect.getsource(thing).split())


def test_the_poller_starts_a_wait_only_with_credit_and_none_under_way() -> None:
    assert "if not channel._in_poll: # send BRPOP channel._brpop_start()" in source(
        kombu_redis.MultiChannelPoller._register_BRPOP
    )
    assert "if channel.qos.can_consume(): self._register_BRPOP(channel)" in source(
        kombu_redis.MultiChannelPoller.on_poll_start
    )


def test_the_requeue_gate_may_choose_the_queues_of_each_fetch_and_end_one_as_if_nothing_came() -> None:
    begins = source(kombu_redis.Channel._brpop_start)
    assert "queues = self._queue_cycle.consume(len(self.active_queues)) if not queues: return" in begins
    reads = source(kombu_redis.Channel._brpop_read)
    assert reads.index("self._queue_cycle.rotate(dest)") < reads.index("self.connection._deliver(")
    assert "else: raise Empty() finally: self._in_poll = None" in reads


def test_a_worker_may_choose_where_its_app_publishes_a_retry() -> None:
    assert "amqp.send_task_message(P, name, message, **options)" in source(celery.Celery.send_task)
    assert celery_amqp.task_message._fields == ("headers", "properties", "body", "sent_event")
    sends = source(celery_amqp.AMQP._create_task_sender)
    assert "(not exchange or not routing_key) and exchange_type == 'direct': exchange, routing_key = '', qname" in sends


def test_the_channel_waits_for_the_answer_under_way_when_it_closes() -> None:
    assert "if self._in_poll: try: self._brpop_read() except Empty" in source(kombu_redis.Channel.close)


def test_a_task_is_ready_before_it_is_acknowledged() -> None:
    """Or an ordinary acknowledgement would pass for an early one."""
    made = source(celery_request.create_request_cls)
    assert made.index("task_ready(self, successful=True)") < made.index("self.acknowledge()")
    failed = source(celery_request.Request.on_failure)
    assert failed.index("task_ready(self)") < failed.index("self.acknowledge()")


def test_the_pool_is_called_with_the_requests_own_callbacks() -> None:
    made = source(celery_request.create_request_cls)
    for name in ("accept_callback=self.on_accepted", "callback=self.on_success", "error_callback=self.on_failure"):
        assert name in made


def test_the_consumer_looks_up_what_we_replace_when_its_loop_starts() -> None:
    handler = source(celery_consumer.Consumer.create_task_handler)
    for name in ("call_soon_ack", "on_unknown_message", "on_unknown_task", "on_invalid_task"):
        assert f"{name} = self.{name}" in handler
    assert "on_task_received = obj.create_task_handler()" in source(loops.asynloop)
    assert "handle = consumer.on_task_request" in source(strategy.default)


def test_the_strategy_reads_the_eta_after_the_signal() -> None:
    text = source(strategy.default)
    assert text.index("signals.task_received.send(sender=consumer, request=req)") < text.index("if req.eta: try:")
