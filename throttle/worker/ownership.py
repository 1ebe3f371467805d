# pyright: basic
"""The task's side of its take: which one it is, and whether the fleet still counts it.

A delivered message carries a mark (fleet, member, take id; at the requeue gate the permit) among its properties, which
reach the task on every pool, in the children of prefork too. A pod that was frozen or cut off past the TTL has lost its
takes to others while their tasks still run here; such a task can ask before an effect that must not happen twice. What
a permit tells is less: the fleet still counts this pod as busy with the task; whether kombu delivered the message to
another pod meanwhile, by its visibility timeout, nobody can ask.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from throttle.errors import NotAMember
from throttle.worker.connecting import connect
from throttle.worker.vocabulary import MARK

if TYPE_CHECKING:
    from throttle.scripts import Operations

_children: dict[int, Operations] = {}
_children_lock = threading.Lock()


def mark(task: Any) -> dict[str, Any]:
    """Fleet, member and take of the message that the task runs for; empty when it came by none."""
    return (task.request.properties or {}).get(MARK) or {}


def still_mine(task: Any) -> bool:
    """See `throttle.still_mine`."""
    found = mark(task)
    if "broadcast" in found:
        return True
    number = found.get("take", found.get("permit"))
    if number is None:
        message = f"task {task.name} was not taken by a worker of a fleet: it has nothing that it could have lost"
        raise NotAMember(message)
    return operations(task.app).holds(str(found["member"]), int(number))


def operations(app: Any) -> Operations:
    """The driver's, in the worker's main process; a connection of the child's own in a child of the prefork pool."""
    made = app.throttle
    if made.driver is not None and made.driver.pid == os.getpid():
        return made.driver.operations
    with _children_lock:
        found = _children.get(os.getpid())
        if found is None:
            _children.clear()
            found = _children[os.getpid()] = connect(app, made.settings)
        return found
