"""Publishing on a channel that kombu has closed, as it does over a refusal of a full Redis."""

# pyright: basic

from __future__ import annotations

from typing import TYPE_CHECKING

from celery import Celery

import throttle

if TYPE_CHECKING:
    from tests.support.servers import Client


def test_a_channel_that_was_closed_is_made_anew(valkey: Client) -> None:
    """By itself kombu ends in an AttributeError, which tells a producer nothing and is not tried again."""
    app = throttle.install(Celery("producer", broker=valkey.url, set_as_current=False))
    with app.producer_pool.acquire() as producer:
        producer.channel.close()
        producer.publish({}, routing_key="celery", retry=True)
    app.close()
    assert valkey.llen("celery") == 1
