"""A driver goes on after a fault of its own, and ends also before it has begun."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from app.local.proxy import Proxy
from app.local.toxics import Latency
from tasks.shards.driver import Driver
from tasks.shards.operations import Operations
from tasks.shards.simulated import Simulated
from tests.shards.driving import KEYS, LONG, Resumes, driver, member
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import pytest

    from tasks.shards.connection import Waiting
    from tests.support.servers import Client


def test_an_answer_that_cannot_be_read_is_asked_for_again(valkey: Client, caplog: pytest.LogCaptureFixture) -> None:
    """As of another version of this program. Who asked no more would lose its lease, and hold its shards for ever."""
    a, b = member(valkey, "a#1"), driver(valkey, "b#1")
    assert a.ask(a.operations.target(2)) == 1
    pending = a.look().head.pending
    assert pending is not None
    valkey.hset(KEYS.binds(pending.version), "7", "nonsense")
    b.start()
    try:
        wait_until(lambda: "not enough values" in caplog.text, 10.0)
        valkey.hdel(KEYS.binds(pending.version), "7")
        wait_until(lambda: a.look().view.binds, 10.0)
    finally:
        b.stop()
    assert "Traceback" in caplog.text


def test_one_that_is_ended_before_it_has_begun_is_over(valkey: Client) -> None:
    b = driver(valkey, "b#1")
    b.start()
    b.stop()
    assert "headroom-shards" not in {thread.name for thread in threading.enumerate()}


def test_who_has_drained_has_left_also_where_redis_is_slow(valkey: Client) -> None:
    """A pod that ends before its LEAVE is there is dead to the others, not gone: they count it for a TTL."""
    a = member(valkey, "a#1")
    where: dict[str, Any] = valkey.connection_pool.connection_kwargs
    with Proxy(("127.0.0.1", where["port"])) as proxy:
        b = driver(valkey, "b#1", url=f"redis://127.0.0.1:{proxy.port}/{where.get('db', 0)}")
        b.start()
        try:
            wait_until(lambda: len(a.look().view.members) == 2, 10.0)
            proxy.add(Latency(0.2))
            assert b.drain(10.0)
        finally:
            b.stop()
    assert [each.name for each in a.look().view.members] == ["a#1"]


class Faulty(Simulated):
    """Its third look at what waits fails."""

    looks = 0
    ended = False

    def waiting(self) -> Waiting:
        self.looks += 1
        if self.looks == 3:
            raise ArithmeticError
        return super().waiting()

    async def end(self) -> None:
        self.ended = True
        await super().end()


def test_a_loop_that_ends_by_a_fault_ends_its_connections_and_is_told(valkey: Client) -> None:
    connections, told = Faulty(Resumes()), list[str]()
    b = Driver(valkey.url, Operations(KEYS, LONG, "b#1"), connections)
    b.on_fault = told.append
    b.start()
    wait_until(lambda: told, 10.0)
    b.stop()
    assert connections.ended
    assert told == ["the loop of its shards has ended: ArithmeticError()"]
    assert "headroom-shards" not in {thread.name for thread in threading.enumerate()}
