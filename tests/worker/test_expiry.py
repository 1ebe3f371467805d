"""What results, groups, chords and bindings leave in Redis: nothing without an expiry."""

# pyright: basic

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.leaks import leaked_keys
from tests.throttle.lab import Lab

if TYPE_CHECKING:
    import redis

    from tests.support.workers import Workers

KEYS = ("table", "deadlines", "seen")
FLEETS = ("epoch", "names", "seq", "pods:alive", "pods:draining", "pods:busy", "beats", "made")
KEPT = [f"{{headroom:default}}:{name}" for name in FLEETS] + ["_kombu.binding*"]
CANVAS = """
import app.celery
from celery import chain, chord, group
from tasks.jobs.loads import sleep
print(group(sleep.s(0), sleep.s(0)).apply_async().get(timeout=30))
print(chain(sleep.si(0), sleep.si(0)).apply_async().get(timeout=30))
print(chord([sleep.s(0), sleep.s(0)], sleep.si(0)).apply_async().get(timeout=30))
result = group(sleep.s(0), sleep.s(0)).apply_async(); result.save(); result.get(timeout=30)
chord([sleep.s(0), sleep.s("no number")], sleep.si(0)).apply_async()
chord([sleep.s(0), sleep.s(0).set(queue="nobody")], sleep.si(0)).apply_async()
try: sleep.delay("no number").get(timeout=30)
except Exception as error: print(type(error).__name__)
"""


def test_what_groups_and_chords_leave_expires(workers: Workers) -> None:
    """Also where a chord never ends: one of its tasks failed, or waits for ever."""
    workers.start(concurrency=2)
    workers.python(CANVAS)
    assert leaked_keys(workers.client, [*KEPT, "nobody"]) == []
    lives: Any = [workers.client.ttl(key) for key in workers.client.keys("celery-task*")]
    assert len(lives) >= 10
    assert max(lives) <= 86400


@pytest.fixture
def lab(server: redis.Redis) -> Lab:
    """A laboratory whose clock the test moves."""
    return Lab(server)


def bindings(lab: Lab) -> set[bytes]:
    """What is bound."""
    return set(lab.client.smembers("table"))


def test_a_binding_goes_when_nobody_speaks_of_it_for_its_time(lab: Lab) -> None:
    lab.client.sadd("table", "of another program")
    assert lab.ops.bind("a", "x", keys=KEYS, ttl_ms=1000) == 0
    lab.advance(600)
    assert lab.ops.bind("b", "x", keys=KEYS, ttl_ms=1000) == 0
    lab.advance(600)
    assert lab.ops.bind("b", "x", keys=KEYS, ttl_ms=1000) == 1
    assert bindings(lab) == {b"b", b"of another program"}
    assert lab.client.pttl("seen") > 0
    assert lab.client.zscore("deadlines", "x") == lab.now_ms + 1000


def test_a_binding_that_is_spoken_of_stays(lab: Lab) -> None:
    for _ in range(5):
        lab.ops.bind("a", "x", keys=KEYS, ttl_ms=1000)
        lab.ops.bind("b", "x", keys=KEYS, ttl_ms=1000)
        lab.advance(600)
    assert bindings(lab) == {b"a", b"b"}
    lab.advance(600)
    assert lab.ops.bind("a", "x", keys=KEYS, ttl_ms=1000) == 1, "its own time was over too, and it is kept"
    assert bindings(lab) == {b"a"}
