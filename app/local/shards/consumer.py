"""What events come to in a demonstration: a task that writes down each event that it gets, and when.

Its worker holds no shards and is not killed, so that one event written twice was handed on twice.
"""
# pyright: basic

from __future__ import annotations

import json
import os
import time
from typing import Any

import redis
from celery import current_app, shared_task

from app.local.discord.book import mark

TASK = "app.local.shards.consumer.hear"
HEARD_KEY = "headroom-local:heard"
QUEUE = "events"

_clients: dict[int, redis.Redis] = {}


@shared_task(name=TASK, ignore_result=True)
def hear(name: str, data: dict[str, Any]) -> None:
    """Write an event down; one round trip."""
    client = _clients.get(os.getpid())
    if client is None:
        conf: Any = current_app.conf
        _clients.clear()
        client = _clients[os.getpid()] = redis.Redis.from_url(conf.broker_url)
    client.rpush(HEARD_KEY, json.dumps([mark(name, data), name, time.monotonic()]))
