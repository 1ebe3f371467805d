"""What pods and askers that come and go, and die in the middle of it, leave in Redis: a bounded number of keys."""

# pyright: basic

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

import throttle
from app.local.processes import wait_ready
from tests.support.leaks import leaked_keys
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from app.local.guard import Guard
    from tests.support.workers import Workers

TIMES = 20
AT_ONCE = 4
CONTROL = "/0.celery.pidbox"
TABLES = ("celery.pidbox", "celeryev", "reply.celery.pidbox")
FLEETS = ("epoch", "names", "seq", "pods:alive", "pods:draining", "pods:busy", "beats", "made")
KEPT = [f"{{headroom:default}}:{name}" for name in FLEETS] + ["_kombu.binding*"]


@pytest.mark.timeout(900)
def test_nothing_piles_up_from_pods_that_are_killed_and_from_askers_that_are_killed(
    workers: Workers, guard: Guard
) -> None:
    valkey: Any = workers.client
    workers.start(2, pool="solo")
    for _ in range(TIMES // AT_ONCE):
        for pod in workers.start(AT_ONCE, pool="solo"):
            pod.kill()
    kill_askers(workers, guard)
    replies = valkey.keys("*.reply.celery.pidbox")
    replies = [key for key in replies if not key.startswith(b"_kombu.")]
    assert replies, "answers have come for some who are dead"
    assert leaked_keys(valkey, KEPT) == []
    before = {name: valkey.scard(f"_kombu.binding.{name}") for name in TABLES}
    assert min(before.values()) >= TIMES
    # An hour later.
    for name in TABLES:
        seen = f"_kombu.binding_seen.{name}"
        valkey.zadd(seen, dict.fromkeys(valkey.zrange(seen, 0, -1), 1), xx=True)
    workers.start(2, pool="solo")
    ask(workers)
    after = {name: valkey.scard(f"_kombu.binding.{name}") for name in TABLES}
    assert max(after.values()) <= 4, after
    assert len(ask(workers)) == 4, "pods answer, also those whose bindings are gone"


def kill_askers(workers: Workers, guard: Guard) -> None:
    """Ask the pods by remote control, and die before they answer."""
    valkey: Any = workers.client
    command = [sys.executable, "-m", "celery", "-A", workers.placement.app, "inspect", "active", "--timeout", "5"]
    with valkey.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(CONTROL)
        listener.get_message(timeout=5)
        for number in range(TIMES):
            name = f"asker-{number}"
            asker = guard.start(
                name,
                command,
                log=workers.placement.log(name),
                env=workers.placement.environment(),
                cwd=workers.folder,
            )
            wait_until(lambda: listener.get_message(timeout=1), 30, what="the question")
            asker.kill()


def ask(workers: Workers) -> list[Any]:
    """Ask which pods there are, as the application does."""
    with Celery("asker", broker=workers.client.url, set_as_current=False) as app:
        throttle.install(app)
        wait_ready(pod for pod in workers.pods if pod.running)
        return app.control.ping(timeout=3)
