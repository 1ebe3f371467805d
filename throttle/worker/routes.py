# pyright: basic
"""Which queue a message was sent to: limits and retries go by it, wherever the message was taken from.

A retry in the critical lane is still work of the queue that it came from first. At the take its `delivery_info` says
so. At the other gate, where the retry is published to the critical queue by name, a header of ours does (`CAME_FROM`).
What names no queue that anybody knows (a message written by hand) counts as sent to where it was taken from.
"""

from __future__ import annotations

from typing import Any

from throttle.worker.vocabulary import MARK

CAME_FROM = "headroom_queue"
"""Header of a retry that was moved to the critical queue: the name of the queue that it came from."""


def name_in(app: Any, delivery: dict[str, Any]) -> str:
    """Name of the queue that is bound to what a `delivery_info` says; the routing key where none is."""
    exchange, key = _text(delivery.get("exchange")), _text(delivery.get("routing_key"))
    bound = (q for q in app.amqp.queues.consume_from.values() if exchange and q.exchange.name == exchange)
    return next((queue.name for queue in bound if queue.routing_key == key), key)


def _text(value: Any) -> str:
    """A word of a message, in which anything may stand."""
    return value if isinstance(value, str) else ""


def queue_of(app: Any, headers: dict[str, Any], delivery: dict[str, Any], properties: dict[str, Any]) -> str:
    """Name of the queue that a message was sent to."""
    came_from = headers.get(CAME_FROM)
    if isinstance(came_from, str) and came_from:
        return came_from
    name, queues = name_in(app, delivery), app.amqp.queues
    if name in queues:
        return name
    exchange = _text(delivery.get("exchange"))
    bound = (queue.name for queue in queues.consume_from.values() if exchange and queue.exchange.name == exchange)
    return next(bound, "") or (properties.get(MARK) or {}).get("queue") or name


def queue_of_request(request: Any) -> str:
    """The same of a worker's request."""
    headers = request.message.headers or {}
    return queue_of(request._app, headers, request.delivery_info, request.request_dict.get("properties") or {})


def queue_of_task(task: Any) -> str:
    """The same of the running task, in whatever process."""
    request = task.request
    headers = {CAME_FROM: request.get(CAME_FROM)}
    return queue_of(task.app, headers, request.delivery_info or {}, request.properties or {})
