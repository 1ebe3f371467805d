# pyright: basic
"""The wrapper around each task's `run`: where a drain's deadline and a soft limit begin to reach it, and cease to.

An error that a task, or a library in it, makes of the deadline (`raise SyncFailed from error`) is the deadline by
another name, and is turned back into it before `autoretry_for` or Celery take it for a failure. A retry that the task
asks for there is its wish, and stands.

Celery's own soft limit is kept to the task's code likewise, but for what comes before it: a task that has ended in time
is not failed because its result takes long to store.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from celery.exceptions import TaskPredicate

from throttle.worker.stopping import PAST, DrainDeadline, notice, ways

if TYPE_CHECKING:
    from collections.abc import Callable


def guard(task: Any) -> None:
    """Let the deadline reach this task's own code, and nothing around it. Safe to repeat."""
    if task.run in _guarded:
        return
    if hasattr(task, "_orig_run"):  # inside of `autoretry_for`
        task._orig_run = _unmasked(task._orig_run)
    run = _unmasked(task.run)

    @wraps(run)
    def guarded(*args: Any, **options: Any) -> Any:
        request = task.request
        if request.called_directly or request.is_eager:
            return run(*args, **options)
        way, is_told = ways.way, task.acks_late
        if is_told and notice.stands == PAST:
            raise DrainDeadline
        if is_told:
            way.enter()
        try:
            return run(*args, **options)
        finally:
            if is_told:
                way.leave()
            way.end()

    _guarded.add(guarded)
    task.run = guarded


_guarded: set[Any] = set()


def _unmasked(run: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but an error that was made of the deadline is the deadline."""

    @wraps(run)
    def unmasked(*args: Any, **options: Any) -> Any:
        try:
            return run(*args, **options)
        except TaskPredicate:
            raise
        except Exception as error:
            if _comes_of_the_deadline(error):
                raise DrainDeadline from error
            raise

    return unmasked


def _comes_of_the_deadline(error: BaseException) -> bool:
    """Whether an error was raised because of the deadline, or while it was handled."""
    seen: set[int] = set()
    behind: list[BaseException | None] = [error]
    while behind:
        each = behind.pop()
        if isinstance(each, DrainDeadline):
            return True
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            behind += [each.__cause__, each.__context__]
    return False


def guard_tasks(app: Any) -> None:
    """All tasks of the app that are its users'."""
    for name, task in app.tasks.items():
        if not name.startswith("celery."):
            guard(task)
