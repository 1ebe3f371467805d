# pyright: basic
"""Remote control as gevent's worker listens for it: in a thread here, on a connection whose other end vanishes."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

from app.local.proxy import Proxy
from app.local.toxics import Timeout
from app.local.waiting import wait_until
from throttle.worker import listening
from throttle.worker.broker import ANSWER_S
from throttle.worker.take import TRANSPORTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Client

ASKED_S = 0.2
"""How often an idle connection is asked here; by itself each `ANSWER_S`."""


def make_app(port: int) -> Any:
    """An app whose broker is at this port of the loopback interface."""
    app: Any = Celery("listening", set_as_current=False, broker=f"redis://127.0.0.1:{port}/0")
    app.conf.update(
        broker_transport=TRANSPORTS["redis"],
        broker_transport_options={"health_check_interval": ASKED_S, "socket_timeout": 2.0},
    )
    return app


class Pod:
    """What a consumer is to remote control."""

    def __init__(self, port: int) -> None:
        """Listen."""
        self.app = make_app(port)
        self.connection = self.app.connection_for_read()
        controller = SimpleNamespace(use_eventloop=False)
        self.consumer = SimpleNamespace(
            app=self.app, hostname="pod@local", connection=self.connection, controller=controller
        )
        self.box = listening.Pidbox(self.consumer)
        self.thread = threading.Thread(target=self.box.loop, args=(self.consumer,))
        self.thread.start()

    def end(self) -> None:
        """As the consumer does."""
        self.box.on_stop()
        self.thread.join(10)
        self.connection.close()
        assert not self.thread.is_alive()


@pytest.fixture
def way(valkey: Client) -> Iterator[Proxy]:
    """To Redis."""
    with Proxy(("127.0.0.1", valkey.server.port)) as way:
        yield way


def hears(client: Client) -> bool:
    """Whether the pod answers."""
    with make_app(client.server.port) as app:
        return bool(app.control.ping(timeout=0.5, destination=["pod@local"]))


def test_a_connection_whose_other_end_is_gone_unsaid_is_given_up(
    valkey: Client, way: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ASKED_S < ANSWER_S
    monkeypatch.setattr(listening, "ANSWER_S", ASKED_S)
    with Proxy(("127.0.0.1", way.port)) as first:
        pod = Pod(first.port)
        try:
            wait_until(lambda: hears(valkey), what="the pod to listen")
            way.add(Timeout(None))  # what is open swallows all; what is opened from now on goes another way
            first.point_to(("127.0.0.1", valkey.server.port))
            wait_until(lambda: hears(valkey), 20, what="it to listen again")
        finally:
            pod.end()


def test_a_redis_that_is_away_for_a_moment_is_tried_again_and_an_end_is_not_waited_for(
    valkey: Client, way: Proxy
) -> None:
    pod = Pod(way.port)
    try:
        wait_until(lambda: hears(valkey), what="the pod to listen")
        way.refuse()
        way.cut()
        assert not hears(valkey)
        way.accept()
        wait_until(lambda: hears(valkey), what="it to listen again")
        way.refuse()
        way.cut()
    finally:
        pod.end()
