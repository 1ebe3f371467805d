# pyright: basic
"""The last moment before a task begins: what is not to begin after all goes back, and the worker goes on.

Celery hands a request to its pool here, on whatever way it came: from a queue, from its timer, past a rate limit, or
after it has waited for a place. By then the pod may drain: what has not begun goes back. And two things can have gone
wrong. The fleet may have given the message to others, because this process was frozen or cut off for a TTL. And the
message may ask for what the pool cannot do (a time limit that is no number), for which Celery would end the worker.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from celery.exceptions import TaskRevokedError
from celery.worker import state as worker_state

from throttle.worker.faults import AWAY

if TYPE_CHECKING:
    from throttle.worker.hosting import Hosting

logger = logging.getLogger(__name__)


def put_back(request: Any) -> None:
    """Let Celery forget a request and give its message back."""
    worker_state.task_ready(request)
    request.reject(requeue=True)


def guard_beginning(hosting: Hosting, request: Any, number: int) -> None:
    """Have the request of a take (or permit) look once more before it begins."""
    execute = request.execute_using_pool

    def execute_using_pool(*args: Any, **options: Any) -> Any:
        if number in hosting.given_back or (hosting.runs_in_children() and not hosting.may_begin(number)):
            raise TaskRevokedError(request.id)  # for which Celery gives the pool's place back
        if hosting.is_lost(number):
            logger.warning("task %s[%s] is not begun: it may be another pod's by now", request.name, request.id)
            put_back(request)
            raise TaskRevokedError(request.id)
        try:
            for limit in request.time_limits or ():
                float(limit or 0)  # some pools notice only where nobody hears of it
            return execute(*args, **options)
        except TaskRevokedError:
            raise
        except Exception as error:
            held = hosting.driver.state.held.get(number)
            if held is None or held.stage == "running" or isinstance(error, AWAY):
                raise
            logger.exception("task %s[%s] cannot be run as its message asks", request.name, request.id)
            hosting.unfit(request, number, error)
            raise TaskRevokedError(str(error)) from error

    request.execute_using_pool = execute_using_pool
