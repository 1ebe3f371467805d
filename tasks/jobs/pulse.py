"""The fleet's pulse: a small task by which one sees that beat, broker and workers are all there.

Beat sends it, some pod runs it, and one line in that pod's log says how the fleet stands. It expires
before the next one: a fleet that is full or down is not followed by a row of stale reports.
"""
# pyright: basic

from __future__ import annotations

import logging
from typing import TypedDict

import redis
from celery import current_app, shared_task

from throttle import Fleet

logger = logging.getLogger(__name__)


class Pulse(TypedDict):
    """How the fleet stood, and how many messages were queued where."""

    alive: int
    busy: int
    capacity: int
    reserve: int
    queued: dict[str, int]


@shared_task
def pulse() -> Pulse:
    """Log and return how the fleet stands: one round trip, and one for each queue.

    Raises:
        redis.RedisError: Redis was away; the next pulse tells anew.
    """
    app = current_app._get_current_object()  # noqa: SLF001 - the proxy has no public way to its app
    with app.pool.acquire(block=True) as connection:
        channel = connection.default_channel
        # The channel's own client renames keys where a prefix is set; Fleet does that itself.
        client = redis.Redis(connection_pool=channel.pool)
        counts = Fleet(client, prefix=channel.global_keyprefix).counts()
        queued = {name: channel._size(name) for name in app.amqp.queues}  # noqa: SLF001 - sums the priorities
    logger.info(
        "fleet: %d alive, %d busy, capacity %d, reserve %d; queued: %s",
        counts.alive,
        counts.busy,
        counts.capacity,
        counts.reserve,
        ", ".join(f"{name} {length}" for name, length in queued.items()),
    )
    return Pulse(
        alive=counts.alive,
        busy=counts.busy,
        capacity=counts.capacity,
        reserve=counts.reserve,
        queued=queued,
    )
