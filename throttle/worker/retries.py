# pyright: basic
"""The lane of retries: which queue a task that failed goes to when it asks to be run again.

A retry is old work: somebody has waited for it since before the flood that is in the queue now. So with
`retry_lane="critical"`, the default, it is published to the first critical queue instead of the tail of the one that
it came from, and may use the pods that are kept free. Three things follow, for whoever would rather have "normal":

* retries share the critical queue, in the order in which they come due. Where much fails at once (a service that all
  tasks need is away), they fill the reserve, and critical work waits behind them.
* any pod that consumes the critical queue may run them. A fleet is meant to be of one kind; where only some pods can do
  a task, they need a fleet of their own, or a critical queue of their own, or "normal".
* a task may say otherwise for itself, `@app.task(retry_lane="normal")`, and `Task.retry(queue=...)` with another queue
  than the one that it came from is obeyed, whatever the lane.

Where it is decided: at the take, as kombu hands a message to our channel, so that the message still tells the queue
that the task came from at first, also while it is retried in the critical one. At the other gate the channel is kombu's
own or another broker's: there a worker's app chooses the queue as it publishes (`publish`), and the message tells where
it is. Published by other means, in a batch (at the take), or in Celery's first protocol, a message stays where it was
sent.

A trap on the way: a retry of what came by a topic exchange names that exchange and no queue. Celery declares the
default queue for it, kombu does not know that the exchange is one of topics, finds nobody who is bound to exactly this
key, and the message is gone. So what is bound to the exchange is declared with it, at both gates.
"""

from __future__ import annotations

from typing import Any

from celery import current_task

from throttle.worker import attempts, routes

LANES = ("critical", "normal")
ROUTE = ("exchange", "routing_key")
ROUTING = (*ROUTE, "exchange_type", "declare")


def is_for_the_critical_lane(message: dict[str, Any], lane: str) -> bool:
    """Whether a message is the retry of the task that publishes it, sent to where that came from, in the critical lane.

    `lane` is that of tasks that do not say themselves.
    """
    goes = message["properties"]["delivery_info"]
    return _is_retry(message.get("headers") or {}, goes) and _lane(lane) == "critical"


def publish(app: Any, lane: str, *, to: str = "") -> None:
    """Have an app publish the retries of its tasks so that they arrive; for a worker's process and its children.

    With `to`, the name of a queue of the app, those that are for the critical lane go there.
    """
    amqp = app.amqp
    send = amqp.send_task_message

    def send_task_message(producer: Any, name: str, message: Any, **options: Any) -> Any:
        goes, headers = _route(options), {**message.headers, **(options.get("headers") or {})}
        if _is_next_try(headers):
            headers[attempts.HEADER] = attempts.with_attempts(current_task)
            options["headers"] = headers
        if _is_retry(headers, goes):
            if to and _lane(lane) == "critical":
                headers[routes.CAME_FROM] = routes.queue_of_task(current_task)
                options = {name: value for name, value in options.items() if name not in ROUTING}
                options["queue"] = amqp.queues[to]
            elif goes["exchange"] and options.get("declare") is None:
                bound = [queue for queue in amqp.queues.values() if queue.exchange.name == goes["exchange"]]
                options["declare"] = bound or None
        return send(producer, name, message, **options)

    amqp.send_task_message = send_task_message


def _lane(lane: str) -> str:
    """The lane of the running task's retries."""
    return getattr(current_task, "retry_lane", lane)


def _is_next_try(headers: dict[str, Any]) -> bool:
    """Whether this is the retry of the running task, wherever it goes."""
    if not headers.get("retries") or not current_task:  # a proxy: false where no task runs
        return False
    request: Any = current_task.request
    return headers.get("id") == request.id and headers["retries"] > (request.retries or 0)


def _is_retry(headers: dict[str, Any], goes: dict[str, str]) -> bool:
    """Whether this is the retry of the running task, on its way to where that came from."""
    if not _is_next_try(headers):
        return False
    request: Any = current_task.request
    came = request.delivery_info or {}
    return all((came.get(name) or "") == (goes.get(name) or "") for name in ROUTE)


def _route(options: dict[str, Any]) -> dict[str, str]:
    """Where Celery sends a message with these options: to an exchange, or to a queue by its name."""
    queue, exchange, key = options.get("queue"), options.get("exchange"), options.get("routing_key")
    if exchange and key:
        return {"exchange": getattr(exchange, "name", exchange), "routing_key": key}
    bound = getattr(queue, "exchange", None)
    if bound is None or bound.type == "direct":
        return {"exchange": "", "routing_key": getattr(queue, "name", queue) or ""}
    return {"exchange": bound.name, "routing_key": key or getattr(queue, "routing_key", "")}
