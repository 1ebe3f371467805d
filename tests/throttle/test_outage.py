"""`on_redis_error`: what the fleet without Celery answers while a real Redis fails, in each way in which it can."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.local.proxy import Proxy
from app.local.servers import Server
from app.local.toxics import Hold, LimitData, Timeout
from tests.support.waiting import wait_until
from throttle import Fleet
from throttle.errors import NameClash

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from app.local.guard import Guard

ANSWER_S = 0.5
BALLAST = 1500
"""Keys that a server reads slowly at its start; it answers each 1024th time."""
KEEPS_ITS_DATA = {"appendonly": "yes", "appendfsync": "always"}


class Redis:
    """A server that can be made to fail, and clients that reach it through a proxy."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.server = Server(guard, options=KEEPS_ITS_DATA).start()
        self.eye = self.server.client()
        self.proxy = Proxy(("127.0.0.1", self.server.port)).start()
        self.clients: list[redis.Redis] = []

    def client(self, **options: Any) -> redis.Redis:
        made = redis.Redis(
            port=self.proxy.port,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            retry=Retry(NoBackoff(), 0),
            **options,
        )
        self.clients.append(made)
        return made

    def end(self) -> None:
        for client in (self.eye, *self.clients):
            client.close()
        self.proxy.close()
        self.server.kill()


@pytest.fixture(scope="module")
def standing(guard: Guard) -> Iterator[Redis]:
    made = Redis(guard)
    yield made
    made.end()


@pytest.fixture
def away(standing: Redis) -> Iterator[Redis]:
    """The server, empty and well."""
    standing.eye.flushall()
    yield standing
    standing.eye.acl_deluser("worker")


@contextmanager
def refused(away: Redis) -> Generator[None]:
    away.proxy.refuse()
    yield
    away.proxy.accept()


@contextmanager
def silent(away: Redis) -> Generator[None]:
    with away.proxy.toxic(Timeout()):
        yield


@contextmanager
def cut_short(away: Redis) -> Generator[None]:
    with away.proxy.toxic(LimitData(1), "downstream"):
        yield


@contextmanager
def frozen(away: Redis) -> Generator[None]:
    away.server.process.pause()
    yield
    away.server.process.resume()


@contextmanager
def replica(away: Redis) -> Generator[None]:
    with away.eye.client() as connection:
        connection.execute_command("REPLICAOF", "127.0.0.1", "1")
        yield
        connection.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def full(away: Redis) -> Generator[None]:
    """Full, and its scripts forgotten: a permit is admitted even then, by the script that is sent anew."""
    away.eye.config_set("maxmemory", 1)
    away.eye.script_flush()
    yield
    away.eye.config_set("maxmemory", 0)


@contextmanager
def loading(away: Redis) -> Generator[None]:
    with away.eye.pipeline(transaction=False) as pipe:
        for number in range(BALLAST):
            pipe.set(f"ballast:{number}", "x" * 500)
        pipe.execute()
    away.server.kill()
    slow = {"key-load-delay": "1000", "loading-process-events-interval-bytes": "1024"}
    away.server.options.update(slow)
    away.server.start()
    yield
    for name in slow:
        del away.server.options[name]
    wait_until(lambda: answers(away.eye), 20.0)
    away.eye.delete(*[f"ballast:{number}" for number in range(BALLAST)])


@contextmanager
def not_allowed(away: Redis) -> Generator[None]:
    with away.eye.client() as connection:
        connection.execute_command("ACL", "SETUSER", "default", "-evalsha")
        yield
        connection.execute_command("ACL", "SETUSER", "default", "+evalsha")


WAYS = (refused, silent, cut_short, frozen, replica, loading, not_allowed)


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except (redis.BusyLoadingError, redis.ConnectionError, redis.TimeoutError):
        return False


@pytest.mark.parametrize("fails", WAYS)
@pytest.mark.parametrize("policy", ["allow", "deny"])
def test_the_policy_holds_however_redis_fails(away: Redis, fails: Callable[[Redis], Any], policy: Any) -> None:
    with Fleet(away.client(), name="f", pod="a", ttl_s=3, on_redis_error=policy) as fleet:
        before = fleet.try_acquire()
        assert before is not None
        assert before.counted
        with fails(away):
            for lane in ("normal", "critical"):
                permit = fleet.try_acquire(lane)
                assert (permit is not None) == (policy == "allow")
                if permit is not None:
                    assert not permit.counted
                    assert not permit.is_valid()
                    assert not permit.release()
            began_s = time.monotonic()
            for _ in range(100):
                fleet.try_acquire()
            assert time.monotonic() - began_s < ANSWER_S, "nobody waits for a Redis that is known to be away"
            assert before.release(), "it will be given back"
        again = wait_until(lambda: counted(fleet), 10.0, what="permits that count again")
        assert again.is_valid()
        assert again.release()
        wait_until(lambda: fleet.counts().busy == 0, what="what was released meanwhile to be given back")


def counted(fleet: Fleet) -> Any:
    """A permit that the fleet counts; None until there is one."""
    permit = fleet.try_acquire()
    return permit if permit is not None and permit.counted else None


def test_a_full_redis_admits_as_ever(away: Redis) -> None:
    with Fleet(away.client(), name="f", pod="a", ttl_s=3, on_redis_error="deny") as fleet, full(away):
        permit = fleet.try_acquire()
        assert permit is not None
        assert permit.is_valid()
        assert permit.release()


def test_one_warning_for_an_outage_and_one_line_at_its_end(away: Redis, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, logger="throttle"),
        Fleet(away.client(), name="f", pod="a", ttl_s=3, on_redis_error="allow") as fleet,
    ):
        with refused(away):
            for _ in range(10):
                fleet.try_acquire()
        wait_until(lambda: len(said(caplog)) > 1, 10.0, what="the end of the outage")
    begin, end = said(caplog)
    assert "on_redis_error=allow until it is back" in begin
    assert end == "Redis is back; permits given uncounted meanwhile: 10"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged about outages."""
    return [record.getMessage() for record in caplog.records if record.name == "throttle.outage"]


def test_without_a_heartbeat_redis_is_asked_once_a_second(away: Redis) -> None:
    fleet = Fleet(away.client(), name="f", pod="a", ttl_s=3, on_redis_error="deny")
    fleet.join()
    with refused(away):
        assert fleet.try_acquire() is None
        with pytest.raises(redis.ConnectionError):
            fleet.beat()
    assert fleet.try_acquire() is None, "not asked so soon"
    wait_until(lambda: fleet.try_acquire() is not None, 3.0, what="a permit by itself")


def test_a_block_begins_and_ends_while_redis_is_away(away: Redis) -> None:
    with refused(away), Fleet(away.client(), name="f", pod="a", ttl_s=3, on_redis_error="allow") as fleet:
        assert fleet.try_acquire() is not None
    with away.proxy.toxic(Hold()):
        fleet = Fleet(away.client(), name="f", pod="b", ttl_s=3, on_redis_error="deny").__enter__()
        assert fleet.try_acquire() is None
    wait_until(lambda: fleet.try_acquire() is not None, 10.0, what="the heartbeat to join")
    fleet.__exit__(None, None, None)
    assert fleet.counts().alive == 0


def test_a_drain_that_did_not_get_through_comes_with_the_next_beat(away: Redis) -> None:
    fleet = Fleet(away.client(), name="f", pod="a", ttl_s=3)
    fleet.join()
    with refused(away), pytest.raises(redis.ConnectionError):
        fleet.drain()
    assert fleet.counts().alive == 1
    assert fleet.beat() == "draining"
    assert (fleet.counts().alive, fleet.counts().draining) == (0, 1)


def test_a_block_that_did_not_begin_has_no_heartbeat_to_wait_for(away: Redis) -> None:
    first = Fleet(away.client(), name="f", pod="a", ttl_s=3)
    first.join()
    second = Fleet(away.client(), name="f", pod="a", ttl_s=3, on_redis_error="deny")
    with pytest.raises(NameClash):
        second.__enter__()
    first.leave()
    second.join()
    with refused(away):
        assert second.try_acquire() is None
    wait_until(lambda: second.try_acquire() is not None, 3.0, what="a permit by itself")


def test_a_client_that_is_refused_is_no_outage(away: Redis) -> None:
    fleet = Fleet(away.client(username="nobody", password="wrong"), name="f", pod="a", ttl_s=3)  # noqa: S106
    with pytest.raises(redis.AuthenticationError):
        fleet.__enter__()


def test_what_was_perhaps_acquired_or_released_keeps_nobody_busy(away: Redis) -> None:
    """The answers of an ACQUIRE and of an ACK are lost, both were done, and both arrive a second time, late."""
    with Fleet(away.client(), name="f", pod="a", ttl_s=3, on_redis_error="allow") as fleet:
        permit = fleet.try_acquire()
        assert permit is not None
        with away.proxy.toxic(Timeout(), "downstream"):
            uncounted = fleet.try_acquire()
            assert uncounted is not None
            assert not uncounted.counted
            lost = fleet.operations.keys.held(fleet.member)
            assert away.eye.hlen(lost) == 2
            assert permit.release()
        wait_until(lambda: away.eye.hlen(lost) == 0, 10.0, what="both to be given back")
        assert fleet.operations.acquire(fleet.member, 2) is False, "the same ACQUIRE, stuck on the way until now"
        assert fleet.counts().busy == 0
        wait_until(lambda: counted(fleet), 10.0)


def test_after_a_loss_of_data_nobody_need_wait_for_the_next_beat(away: Redis) -> None:
    fleet = Fleet(away.client(), name="f", pod="a", ttl_s=3)
    fleet.join()
    first = fleet.try_acquire()
    away.eye.flushall()
    second = fleet.try_acquire()
    assert first is not None
    assert second is not None
    assert first.is_valid()
    assert fleet.counts()[:2] == (1, 1)


def test_a_name_that_another_took_meanwhile_is_a_clash(away: Redis) -> None:
    fleet = Fleet(away.client(), name="f", pod="a", ttl_s=3)
    fleet.join()
    away.eye.flushall()
    Fleet(away.client(), name="f", pod="a", ttl_s=3).join()
    with pytest.raises(NameClash):
        fleet.try_acquire()


def test_behind_a_name_that_moves_the_new_master_is_found(away: Redis) -> None:
    """The old one is a replica now and keeps its connections: they are dropped, once they are answered READONLY."""
    new = Server(away.guard).start()
    try:
        with Fleet(away.client(), name="f", pod="a", ttl_s=3, on_redis_error="deny") as fleet:
            assert fleet.try_acquire() is not None
            away.proxy.point_to(("127.0.0.1", new.port))
            with replica(away):
                assert fleet.try_acquire() is None
                wait_until(lambda: fleet.try_acquire() is not None, 10.0, what="a permit of the new master")
                with new.client() as client:
                    assert client.exists(fleet.operations.keys.held(fleet.member))
    finally:
        away.proxy.point_to(("127.0.0.1", away.server.port))
        new.kill()


def test_threads_do_not_wait_for_each_other_while_nobody_answers(away: Redis) -> None:
    with (
        Fleet(away.client(), name="f", pod="a", ttl_s=3, on_redis_error="allow") as fleet,
        silent(away),
    ):
        began_s = time.monotonic()
        threads = [threading.Thread(target=fleet.try_acquire) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - began_s < ANSWER_S * 4, "one time limit, or two with a beat under way; not twenty"


def test_a_client_without_a_time_limit_is_warned_about(away: Redis, caplog: pytest.LogCaptureFixture) -> None:
    Fleet(redis.Redis(port=away.proxy.port, socket_timeout=None), name="f", pod="a")
    assert "no socket_timeout" in caplog.text
