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

`request.delivery_info` names the queue that the task came from at first, also while it is retried in the critical one.
Published by other means, in a batch, or in Celery's first protocol, a message stays where it was sent.
"""

from __future__ import annotations

from typing import Any

from celery import current_task

LANES = ("critical", "normal")
ROUTE = ("exchange", "routing_key")


def is_for_the_critical_lane(message: dict[str, Any], lane: str) -> bool:
    """Whether a message is the retry of the task that publishes it, sent to where that came from, in the critical lane.

    `lane` is that of tasks that do not say themselves.
    """
    headers = message.get("headers") or {}
    if not headers.get("retries") or not current_task:  # a proxy: false where no task runs
        return False
    if getattr(current_task, "retry_lane", lane) != "critical":
        return False
    request: Any = current_task.request
    if headers.get("id") != request.id or headers["retries"] <= (request.retries or 0):
        return False
    came, goes = request.delivery_info or {}, message["properties"]["delivery_info"]
    return all((came.get(name) or "") == (goes.get(name) or "") for name in ROUTE)
