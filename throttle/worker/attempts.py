# pyright: basic
"""Which failures of a task are tried again, after what pause, and what becomes of those that are not.

In the process that runs the task (`watch` wraps each task's `run` when the worker starts)
==========================================================================================
==========================================  ========================================================================
what came out                               then
==========================================  ========================================================================
a temporary error, tries left               `Task.retry`, after a pause: exponential back-off with full jitter
a temporary error, none left                the error: the task has failed
a permanent error                           the error, past any `autoretry_for`
another error; `retry`, `Ignore`, `Reject`  as in plain Celery
==========================================  ========================================================================

Temporary is `TemporaryError`, permanent `PermanentError`; and what the task names (`@app.task(temporary=(OSError,),
permanent=(ValueError,))`), else what `throttle.Retries` names. A task's own `max_retries`, `retry_backoff`,
`retry_backoff_max` and `retry_jitter` go before those of the queue, those before the default. Celery's `autoretry_for`
goes first of all for what it catches.

In the worker's main process (`reason`)
=======================================
A task that has failed for good with a permanent error, or with a temporary one, or in the last of its tries (however it
asked for them), becomes a dead letter when Celery acknowledges it: from held to dead in one script. All else is plain
Celery: the result is FAILURE, errbacks are called, a chord's body is told. `@app.task(dead_letter=False)` keeps its
failures out of the dead letters.

Each retry is a new message, which carries what ended the tries before it in a header (`HEADER`), so that the story is
neither lost with a pod nor left behind in Redis. At most `ATTEMPTS_KEPT` lines of `LINE_BYTES`, at the pods' own times.

A crash between the publication of a retry and the acknowledgement of what it follows leaves both: the try is made
twice. A crash before the publication leaves the message, which is delivered again; the try is not lost.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from functools import wraps
from typing import TYPE_CHECKING, Any

from celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    TaskPredicate,
    Terminated,
    TimeLimitExceeded,
    WorkerLostError,
)
from kombu.utils.encoding import safe_str

from throttle.dead import ATTEMPTS as HEADER
from throttle.dead import ATTEMPTS_KEPT
from throttle.errors import PermanentError, TemporaryError
from throttle.policy import Backoff, is_one_of, names_of
from throttle.worker import ownership, routes
from throttle.worker.faults import told

if TYPE_CHECKING:
    from collections.abc import Callable

    from throttle.policy import Retries

logger = logging.getLogger(__name__)

LINE_BYTES = 2048
EXHAUSTED, PERMANENT = "retries exhausted", "permanent error"
NOT_ITS_OWN = (TaskPredicate, WorkerLostError, Terminated, TimeLimitExceeded, MemoryError)
"""What ends a task from outside, or is no failure: Celery and the count of deliveries see to it."""
UNPICKLEABLE = ("exc_module", "exc_cls_name")


class Carried(Ignore):
    """A permanent error on its way past `autoretry_for`, which lets `Ignore` alone."""

    def __init__(self, error: Exception) -> None:
        """Carry it."""
        super().__init__()
        self.error = error


def watch(app: Any) -> None:
    """Have the tasks of an app tried again as their policy says. For a worker's process, before it has children."""
    for name, task in list(app.tasks.items()):
        if not name.startswith("celery.") and not hasattr(task.run, "watched"):
            _wrap(task)


def _wrap(task: Any) -> None:
    again = getattr(task, "_orig_run", None)
    if again is not None:
        task._orig_run = _carrying(task, again)
    run = task.run

    @wraps(run)
    def watched(*args: Any, **options: Any) -> Any:
        try:
            return run(*args, **options)
        except Carried as carried:
            raise carried.error from carried.error.__cause__
        except TaskPredicate:
            raise
        except Exception as error:
            if _tried_again(task, error):
                raise _retry(task, error) from error
            raise

    vars(watched)["watched"] = True
    task.run = watched


def _carrying(task: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def carrying(*args: Any, **options: Any) -> Any:
        try:
            return run(*args, **options)
        except Exception as error:
            if kind(task, type(error)) == "permanent":
                raise Carried(error) from error
            raise

    return carrying


def kind(task: Any, error: type[BaseException]) -> str:
    """What an error of a task is: permanent, temporary, or '' for one that nobody has named."""
    made = task.app.throttle
    retries: Retries = made.resolved or made.retries
    for permanent, temporary in (
        (getattr(task, "permanent", ()), getattr(task, "temporary", ())),
        ((PermanentError,), (TemporaryError,)),
        (retries.permanent, retries.temporary),
    ):
        if is_one_of(error, names_of(tuple(permanent))):
            return "permanent"
        if is_one_of(error, names_of(tuple(temporary))):
            return "temporary"
    return ""


def backoff_of(task: Any, queue: str) -> Backoff:
    """How often a task of a queue is tried again; a task's own options go first."""
    backoff: Backoff = task.app.throttle.retries.of(queue)
    if _declares(task, "max_retries"):
        backoff = backoff._replace(max_retries=sys.maxsize if task.max_retries is None else task.max_retries)
    own = getattr(task, "retry_backoff", None)
    if own is not None:
        backoff = backoff._replace(backoff_s=float(own))
    return backoff._replace(backoff_max_s=float(getattr(task, "retry_backoff_max", backoff.backoff_max_s)))


def _declares(task: Any, name: str) -> bool:
    """Whether a task has this of its own, and not from Celery's."""
    classes = (each for each in type(task).__mro__ if each.__module__ != "celery.app.task")
    return name in vars(task) or any(name in vars(each) for each in classes)


def _tried_again(task: Any, error: Exception) -> bool:
    request = task.request
    if request.called_directly or kind(task, type(error)) != "temporary":
        return False
    return (request.retries or 0) < backoff_of(task, routes.queue_of_task(task)).max_retries


def _retry(task: Any, error: Exception) -> BaseException:
    """Publish the retry; what ends this run."""
    backoff = backoff_of(task, routes.queue_of_task(task))
    try:
        return task.retry(
            exc=error, countdown=pause_s(task, backoff, error), max_retries=backoff.max_retries, throw=False
        )
    finally:
        vars(task).pop("override_max_retries", None)  # which Celery leaves behind, for its own `autoretry_for`


def pause_s(task: Any, backoff: Backoff, error: Exception) -> float:
    """How long to wait before the next try."""
    longest_s = backoff.pause_s(task.request.retries or 0)
    spread_s = random.uniform(0, longest_s) if getattr(task, "retry_jitter", True) else longest_s
    return float(getattr(error, "after_s", 0) or 0) + spread_s


# ---------------------------------------------------------------- the story of a message


def with_attempts(task: Any) -> list[list[Any]]:
    """What ended the tries of the running task before, and this one, whose error is being handled now."""
    before = task.request.get(HEADER)
    error = sys.exc_info()[1]
    number = (task.request.retries or 0) + 1
    text = told(error, LINE_BYTES) if error is not None else "it asked to be run again"
    line = [round(time.time() * 1000), str(ownership.mark(task).get("member", "")), f"try {number}", text]
    return [*(before if isinstance(before, list) else []), line][-ATTEMPTS_KEPT:]


# ---------------------------------------------------------------- the end


def reason(request: Any, error: BaseException) -> str:
    """Why a request whose task has failed with this is a dead letter; '' when it is none, or when nobody can tell.

    Never raises: Celery is to hear of the end, or the task would keep its place in the pool for good.
    """
    try:
        return _reason(request, error)
    except Exception:
        logger.exception("headroom: whether %s[%s] is a dead letter cannot be told", request.name, request.id)
        return ""


def _reason(request: Any, error: BaseException) -> str:
    task = request.task
    own = isinstance(error, Exception) and not isinstance(error, NOT_ITS_OWN)
    if not own or not getattr(task, "dead_letter", True):
        return ""
    known = kind(task, _class_of(error))
    if known == "permanent":
        return PERMANENT
    told_retries = request.request_dict.get("retries")
    retries = told_retries if isinstance(told_retries, int) else 0  # whatever a message says
    queue = routes.queue_of_request(request)
    last = retries > 0 and retries >= _allowed(task, queue)
    return EXHAUSTED if known == "temporary" or last or isinstance(error, MaxRetriesExceededError) else ""


def _allowed(task: Any, queue: str) -> int:
    """Retries that a task may ask for by itself, or that its queue gives it."""
    own = sys.maxsize if task.max_retries is None else task.max_retries
    return own if _declares(task, "max_retries") else max(own, backoff_of(task, queue).max_retries)


def _class_of(error: BaseException) -> type[BaseException]:
    """The class of an error, also of one that could not be pickled on its way from the child."""
    module, name = (safe_str(getattr(error, attribute, "")) for attribute in UNPICKLEABLE)
    found = getattr(sys.modules.get(module), name, None) if module else None
    return found if isinstance(found, type) and issubclass(found, BaseException) else type(error)
