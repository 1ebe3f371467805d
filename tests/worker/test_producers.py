"""A producer whose Redis fails has one clear error within PUBLISH_TIMEOUT, whatever the way in which it fails."""

# pyright: basic

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from kombu.exceptions import OperationalError

import throttle
from app.local.proxy import Proxy
from app.local.servers import free_port
from app.local.toxics import Hold, Timeout
from throttle.worker.deadline import Expired, deadline, left_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Client

LIMIT_S = 1.0
SLACK_S = 2.0
"""Of a machine under load. By itself each of these waits takes half a minute, or for ever."""


def made_app(url: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Celery:
    """A producer that waits for a second at most."""
    monkeypatch.setenv("PUBLISH_TIMEOUT", str(LIMIT_S))
    app = Celery("shop", broker=url, set_as_current=False, **options)
    throttle.install(app)
    return app


def failure(app: Celery) -> str:
    """What a publication says that fails in time."""
    began_s = time.monotonic()
    with pytest.raises(OperationalError) as caught:
        app.send_task("t", queue="q")
    assert time.monotonic() - began_s < LIMIT_S + SLACK_S
    (line,) = str(caught.value).splitlines()
    return line


@pytest.fixture
def way(valkey: Client) -> Iterator[Proxy]:
    """A way to Redis that can be made bad."""
    with Proxy(("127.0.0.1", valkey.server.port)) as proxy:
        yield proxy


def address(way: Proxy) -> str:
    """Redis' address at the end of the way."""
    return f"redis://127.0.0.1:{way.port}/0"


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    line = failure(made_app(f"redis://:secret@127.0.0.1:{port}/0", monkeypatch))
    assert line.startswith(f"not published: redis://:**@127.0.0.1:{port}/0: Error 111")


def test_there_is_no_such_host(monkeypatch: pytest.MonkeyPatch) -> None:
    line = failure(made_app("redis://nowhere.invalid:6379/0", monkeypatch))
    assert line.startswith("not published: redis://")
    assert "nowhere.invalid" in line


@pytest.mark.parametrize("toxic", [Timeout(), Hold()], ids=["silent", "held up"])
def test_redis_is_silent_from_the_start(way: Proxy, toxic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    way.add(toxic)
    assert failure(made_app(address(way), monkeypatch)).startswith("not published: ")
    way.clear()


def test_a_connection_in_use_goes_silent_and_the_next_publication_makes_a_new_one(
    way: Proxy, valkey: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = made_app(address(way), monkeypatch)
    app.send_task("t", queue="q")
    with way.toxic(Timeout()):
        assert f"no answer of {app.connection_for_write().as_uri()} within 1 s (PUBLISH_TIMEOUT)" in failure(app)
    app.send_task("t", queue="q")
    assert valkey.llen("q") == 2


def test_an_idle_connection_whose_other_end_is_gone_costs_no_error(
    way: Proxy, valkey: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = made_app(address(way), monkeypatch)
    app.conf.broker_transport_options = {"health_check_interval": 0.1}
    app.send_task("t", queue="q")
    black_hole = Timeout()
    way.add(black_hole)
    threading.Timer(0.15, way.remove, [black_hole]).start()
    time.sleep(0.12)
    app.send_task("t", queue="q")
    assert valkey.llen("q") == 2


def test_many_threads_at_once_have_it_in_time_too(way: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    app = made_app(address(way), monkeypatch)
    way.add(Timeout())
    with ThreadPoolExecutor(50) as threads:
        lines = [future.result() for future in [threads.submit(failure, app) for _ in range(50)]]
    assert all(line.startswith("not published: ") for line in lines)


@pytest.mark.filterwarnings("ignore:Call to deprecated setex")  # by Celery's back end, in this process
def test_to_send_needs_no_result_back_end_and_to_wait_finds_what_is_there(
    valkey: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = made_app(valkey.url, monkeypatch, backend=f"redis://127.0.0.1:{free_port()}/0")
    away.send_task("t", queue="q")
    app = made_app(valkey.url, monkeypatch, backend=valkey.url)
    before, after = app.send_task("t", queue="q"), app.send_task("t", queue="q")
    assert valkey.pubsub_channels("celery-task-meta-*") == []
    app.backend.store_result(before.id, 1, "SUCCESS")
    assert before.get(timeout=5) == 1
    threading.Timer(0.3, app.backend.store_result, [after.id, 2, "SUCCESS"]).start()
    assert after.get(timeout=5) == 2
    assert valkey.llen("q") == 3


def test_a_deadline_is_of_its_thread_and_the_outer_one_counts() -> None:
    with deadline(10, lambda: "here"):
        outer_s = left_s()
        with deadline(1000, lambda: "inside"):
            inner_s = left_s()
        with ThreadPoolExecutor(1) as other:
            assert other.submit(left_s).result() is None
    assert outer_s is not None
    assert inner_s is not None
    assert inner_s <= outer_s <= 10
    assert left_s() is None


def test_what_is_over_is_an_error_that_names_the_place() -> None:
    def wait() -> None:
        with deadline(0.001, lambda: "redis://here"):
            time.sleep(0.01)
            left_s()

    with pytest.raises(
        OperationalError, match=r"no answer of redis://here within 0.001 s \(PUBLISH_TIMEOUT\)"
    ) as caught:
        wait()
    assert isinstance(caught.value.__cause__, Expired)
