"""A vote's round from beat to every worker: how it is sent, and the step of a worker that takes it.

A round is a message on a fanout exchange. Celery's own broadcast would make it a task, which a pool runs in a process
of its own, behind others; and its documented route is dropped by a publisher that has not declared the exchange: beat
is one. So beat's entry declares the exchange itself, and each worker's main loop has a consumer of its own for it: a
round takes no slot, waits behind nothing, and reaches the thread that holds the connections in every kind of pool.

Redis keeps no such message: a worker that is away misses it, and its own timer stands in (`tasks.shards.rounds`).
"""
# pyright: basic

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from celery import bootsteps
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer

from tasks.shards import rounds

if TYPE_CHECKING:
    from celery import Celery

logger = logging.getLogger(__name__)

_here = rounds.VoteRounds()


def vote_rounds() -> rounds.VoteRounds:
    """The rounds of this pod: what the driver of the shards waits for."""
    return _here


def exchange() -> Exchange:
    """The exchange of the rounds. Not durable: nothing in it outlives a moment."""
    return Exchange(rounds.EXCHANGE, type="fanout", durable=False, delivery_mode="transient")


def entry() -> dict[str, Any]:
    """Beat's entry, for Celery's scheduler and for ours. Missed rounds are not made up."""
    return {
        "task": rounds.TASK,
        "schedule": rounds.EVERY_S,
        "options": {
            "exchange": rounds.EXCHANGE,
            "exchange_type": "fanout",
            "routing_key": rounds.ROUTING_KEY,
            "declare": [exchange()],
            "ignore_result": True,
        },
    }


class Rounds(bootsteps.ConsumerStep):
    """Listens for rounds in the worker's main loop, at each connection to the broker anew."""

    label = "Shard rounds"
    requires = ("celery.worker.consumer:Connection",)

    def get_consumers(self, channel: Any) -> list[Consumer]:
        """One consumer. All workers name the queue alike: on Redis each of them hears the channel behind it."""
        queue = Queue(rounds.EXCHANGE, exchange(), routing_key=rounds.ROUTING_KEY, durable=False)
        return [Consumer(channel, [queue], callbacks=[heard], accept=["json"], no_ack=True)]


def heard(_body: Any, message: Any) -> None:
    """A round came. What is no round changes nothing."""
    if (message.headers or {}).get("task") != rounds.TASK:
        return
    taken = vote_rounds().ask()
    logger.debug("shards: a round of votes came%s", "" if taken else ", too soon after the last")


def install(app: Celery) -> None:
    """Add the step to an app's workers."""
    app.steps["consumer"].add(Rounds)  # pyright: ignore[reportOptionalSubscript]
