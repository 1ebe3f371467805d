# pyright: basic
"""What `install` decides without a worker: the transport of each address, and the lane of retries."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

import throttle
from throttle.errors import ConfigurationError


@pytest.mark.parametrize(
    ("broker", "transport"),
    [
        ("redis://one:6379/0", "Transport"),
        ("redis+socket:///run/redis.sock", "Transport"),
        ("rediss://one:6379/0?ssl_cert_reqs=required", "TLSTransport"),
        ("sentinel://one:26379;sentinel://two:26379", "SentinelTransport"),
    ],
)
def test_each_address_of_a_broker_is_taken_from(broker: str, transport: str) -> None:
    app: Any = throttle.install(Celery(broker=broker, set_as_current=False))
    connection = app.connection_for_read()
    ours = f"throttle.worker.take:{transport}"
    assert connection.transport_cls == ours
    assert connection.clone().transport_cls == ours
    for address in connection.alt:
        connection.switch(address)  # as kombu does when it fails over
        assert connection.transport_cls == ours
    assert connection.as_uri().startswith(broker.partition(":")[0])


def test_an_app_without_headroom_keeps_its_transport() -> None:
    throttle.install(Celery(broker="redis://one", set_as_current=False)).connection_for_read()
    assert Celery(broker="redis://one", set_as_current=False).connection_for_read().transport_cls == "redis"


def test_a_lane_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match="retry_lane='fast': allowed is critical or normal"):
        throttle.install(Celery(set_as_current=False), retry_lane="fast")
