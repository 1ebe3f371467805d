# pyright: basic
"""Keeps a task from ending the process that runs it, on pools without children.

Celery raises `WorkerShutdown` and `WorkerTerminate` again outside of prefork, past everything that could hear of the
task's end, because it raises them itself to end a worker. From a task they are an error like others: without this, one
message ends a pod of gevent or solo at each delivery, uncounted, and holds a place of the threads pool for good.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.worker import state as worker_state

if TYPE_CHECKING:
    from collections.abc import Callable


def ending() -> bool:
    """Whether the worker is being ended by its own signals or commands."""
    return any(asked is not None and asked is not False for asked in _asked())


def cold() -> bool:
    """Whether the worker shuts down without waiting for its tasks."""
    return worker_state.should_terminate is not None and worker_state.should_terminate is not False


def _asked() -> tuple[Any, Any]:
    return worker_state.should_stop, worker_state.should_terminate


def contain(pool: Any, begins: Callable[[Any], bool]) -> None:
    """Let what a task raises to end its worker fail the task, and begin none that was given back. Safe to repeat.

    Args:
        pool: of Celery.
        begins: whether the task of a request (its name, id, headers and properties) may begin.
    """
    apply = pool.on_apply
    if hasattr(apply, "contains"):
        return

    def on_apply(target: Callable[..., Any], *args: Any, **options: Any) -> Any:
        @wraps(target)
        def contained(*task_args: Any, **task_options: Any) -> Any:
            if not begins(task_args):
                return (False, None, None)
            try:
                return target(*task_args, **task_options)
            except (WorkerShutdown, WorkerTerminate) as error:
                if ending():
                    raise
                message = f"{type(error).__name__} was raised by a task"
                raise SystemExit(message) from error

        return apply(contained, *args, **options)

    on_apply.contains = True
    pool.on_apply = on_apply
