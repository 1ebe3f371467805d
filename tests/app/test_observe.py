"""What is read from Redis is what is there, and a real fleet that breaks the rule is found out."""
# pyright: basic

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

from app.local.judge import Published, Verdict, judge
from app.local.observe import Observer, message_of, task_of
from tests.support.waiting import wait_until
from throttle.keys import Keys
from throttle.scripts import Operations, Rule, Take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Client
    from tests.support.workers import Workers

QUEUES = ("task_queue", "critical")
RULE = Rule(ratio=0.8, ttl_ms=3000, max_deliveries=5, journal=1000)


@pytest.fixture
def producer(valkey: Client) -> Iterator[Celery]:
    """A producer that knows only the broker's address."""
    with Celery(broker=valkey.url, set_as_current=False) as made:
        yield made


@pytest.fixture
def observer(valkey: Client) -> Observer:
    """Looks at the fleet on the Valkey of the run."""
    return Observer(valkey, fleet="default", rule=RULE, queues=QUEUES)


def send(producer: Celery, seconds: float, queue: str = "task_queue", **options: Any) -> Published:
    at_s = time.time()
    name = "tasks.jobs.loads.sleep"
    return Published(producer.send_task(name, (seconds,), queue=queue, **options).id, queue, at_s)


def test_an_empty_server_shows_an_empty_fleet(observer: Observer) -> None:
    view = observer.look()
    assert view.counts.alive == 0
    assert view.queued == {"task_queue": 0, "critical": 0}
    assert view.held == {}
    assert observer.remaining() == set()
    assert observer.journal() == []
    assert observer.read_records() == []


def test_messages_of_every_priority_are_counted_and_remain(producer: Celery, observer: Observer) -> None:
    sent = {send(producer, 1, priority=priority).task for priority in (0, 3, 6, 9)}
    sent.add(send(producer, 1, "critical").task)
    assert observer.look().queued == {"task_queue": 4, "critical": 1}
    assert observer.remaining() == sent


def test_held_parked_and_dead_messages_remain(valkey: Client, producer: Celery, observer: Observer) -> None:
    sent = [send(producer, 1).task for _ in range(4)]
    fleet = Operations(valkey, Keys("default"), RULE)
    fleet.join("pod#0", draining=False, epoch="", next_id=1, running=(), emptied=())
    for number in (1, 2, 3):
        assert isinstance(fleet.take("pod#0", number, [], ["task_queue"]), Take)
    assert fleet.back("pod#0", 2, "dead", deliveries=1, reason="test")
    assert fleet.park("pod#0", 3, int(time.time() * 1000) + 100_000)
    assert observer.look().held == {"pod": 1}
    assert observer.remaining() == set(sent)
    assert fleet.ack("pod#0", 1)
    assert observer.remaining() == set(sent[1:])


@pytest.mark.parametrize("message", [b"", b"not json", b"[]", b"{}", b'{"headers": null}'])
def test_a_message_that_is_not_celerys_has_no_task(message: bytes) -> None:
    assert task_of(message) == ""
    assert message_of(b"7 0 1 q" + message) == message


def test_a_fleet_that_breaks_the_rule_is_found_out(workers: Workers, producer: Celery, observer: Observer) -> None:
    """Two pods at a ratio of 1 may both be busy; judged by a ratio of 0.8 only one of them may."""
    workers.start(2, THROTTLE_RATIO="1", THROTTLE_JOURNAL="1000")
    published = [send(producer, 0.2) for _ in range(6)]
    wanted = {message.task for message in published}
    wait_until(lambda: observer.read_records() is not None and wanted <= observer.progress.done, 20)
    wait_until(lambda: observer.look().counts.busy == 0)

    def judged(ratio: float) -> Verdict:
        verdict = judge(
            journal=observer.journal(),
            published=published,
            records=observer.progress.records,
            ratio=ratio,
            ttl_ms=RULE.ttl_ms,
        )
        assert (verdict.done, verdict.lost, verdict.out_of_order) == (6, [], [])
        return verdict

    assert judged(1.0).broken == []
    found = judged(0.8)
    assert "1 other pods were busy, capacity 1 of 2 living" in {v.reason for v in found.violations}
    assert "the script saw a capacity of 2 where 2 pods lived" in {c.reason for c in found.contradictions}
