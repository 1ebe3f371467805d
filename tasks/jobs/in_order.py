"""Events of one guild, one after the other, however many workers there are.

Protocol
========
An event that is to keep its order stands in its guild's *line*, a list in Redis. Where nobody works on that line, the
script that puts the event there publishes this module's task with it, in the same step. The task works on the line
from its head: TURN (`tasks/shards/lua/turn.lua`) tells it the head, and takes that away when it is done.

- **One at a time**: the line has an owner, the id of the task, and a turn, which rises with each of its starts. TURN
  answers only the newest turn of the owner. So a task that a frozen pod wakes up with, while the fleet has given it to
  another pod, ends at its next event.
- **Nothing is lost**: the head stays in the list until it was worked on. The task is acknowledged when it is over, so
  that a pod which dies in it is followed by another, which begins with that head: **at least once**, like every task.
- **The end**: TURN finds the line empty and gives it up in one step; an event that comes after that starts a new task.
- An event that raises, or with which two pods died, leaves its line and is published by itself, under its own id:
  limits, retries and dead letters are those of every task, and the guild goes on without it. One that is tried again
  (a temporary error, `retry`) has published its next try itself.
- After `SLICE_S`, and when its pod drains, the task publishes itself again and ends: other work has its turn.

- A task that is lost (killed at its time limit, a dead letter) leaves a line without anybody. TURN notes by which take
  the fleet holds the task's message; the script that puts the guild's next event in the line finds that the take counts
  no more, and starts another task. If the first one comes again after all, it has the line no more, and ends.

- A task that is lost before it began (purged) is found likewise: it has waited for a minute, and its queue is empty. In
  truth it may be in another queue, or taken and not begun; then it ends when it begins, for the line is another's.

A task whose take the script cannot look up (there is none with `gate="requeue"`; the workers are of another fleet) is
given up a quarter of an hour after its last sign of life. An event that is worked on for longer than that may run
beside itself.
"""
# pyright: basic

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from billiard.exceptions import SoftTimeLimitExceeded
from celery import shared_task
from celery.exceptions import Ignore, Reject, Retry

from tasks.shards.delivery import calls
from tasks.shards.keys import Keys
from tasks.shards.operations import Numbers, Operations
from throttle import draining
from throttle.errors import TemporaryError
from throttle.lua import evaluate
from throttle.worker import ownership
from throttle.worker.faults import AWAY

if TYPE_CHECKING:
    from celery import Task

logger = logging.getLogger(__name__)

TASK = "tasks.jobs.in_order.in_order"
SLICE_S = 10.0
MOST_TRIES = 2


class Line:
    """A guild's line as the task sees it. Every question is one round trip."""

    def __init__(self, task: Task, bot: str, guild: int) -> None:
        """Nothing is sent. The line's owner is the id of the `task`."""
        fleet, mark = ownership.operations(task.app), ownership.mark(task)
        self._client = fleet.client
        self._held = (fleet.keys.held(mark["member"]), str(mark["take"])) if "take" in mark else ("", "")
        self._calls = calls.Calls(Operations(Keys(bot), Numbers()), "", 1.0)
        self._guild, self._owner, self._turn, self._done = guild, str(task.request.id), 0, 0

    def head(self) -> tuple[int, dict[str, Any]] | None:
        """How often the head was begun, this time included, and what it is; None: there is none, or not for us.

        Raises what Redis raises.
        """
        tries, message = self._ask("begin")
        return (tries, json.loads(message)) if message is not None else None

    def done(self) -> None:
        """The head was worked on; the next question says so."""
        self._done += 1

    def goes_on(self) -> bool:
        """Whether there is another event, for later. Raises what Redis raises."""
        return self._ask("ask")[1] is not None

    def is_queued(self) -> None:
        """The task waits in its queue for its next start, and this one ends. Raises what Redis raises."""
        self._ask("queued")

    def _ask(self, begin: calls.Begin) -> tuple[int, bytes | None]:
        command = self._calls.turn(self._guild, self._owner, self._turn, self._done, begin=begin, held=self._held)
        answer = evaluate(self._client, command, calls.script("turn").source)
        self._turn, tries, message = calls.read_turn(answer)
        return tries, message


@shared_task(bind=True, name=TASK, ignore_result=True)
def in_order(self: Task, bot: str, guild: str) -> int:
    """Work on a guild's line; returns how many events that were.

    Raises:
        TemporaryError: Redis was away; the task comes again.
    """
    line = Line(self, bot, int(guild))
    end_s, worked, on = time.monotonic() + SLICE_S, 0, True
    try:
        while on and (found := line.head()) is not None:
            on = _work(self, *found) and time.monotonic() < end_s and not draining()
            line.done()
            worked += 1
        if not on and line.goes_on():
            _go_on(self, bot, guild)
            line.is_queued()
    except AWAY as error:
        raise TemporaryError(f"the line of guild {guild}: {error}") from error
    return worked


def _go_on(task: Task, bot: str, guild: str) -> None:
    """Publish the task once more, as the owner that it is."""
    task.apply_async((bot, guild), task_id=task.request.id, **_where(task))


def _where(task: Task) -> dict[str, str]:
    """The queue that the task came by, as an option of what it publishes."""
    queue = (task.request.delivery_info or {}).get("routing_key")
    return {"queue": queue} if queue else {}


def _work(within: Task, tries: int, waiting: dict[str, Any]) -> bool:
    """Work on one event, or let it leave the line. False: the time for this task is over."""
    task, in_time = within.app.tasks.get(waiting["task"]), True
    if tries > MOST_TRIES:
        why = f"{tries - 1} pods died over it"
    elif task is None:
        why = "this worker does not know its task"
    else:
        try:
            _run(within, task, waiting)
        except (Retry, Ignore):
            return True
        except Reject as rejected:
            if not rejected.requeue:
                return True
            why = "it was rejected, to come again"
        except Exception as error:  # noqa: BLE001 - whatever it is, the guild goes on
            why, in_time = repr(error), not isinstance(error, SoftTimeLimitExceeded)
        else:
            return True
    logger.warning("in_order: event %s (task %s) leaves its line: %s", waiting["args"][0], waiting["id"], why)
    options = {"task_id": waiting["id"], "ignore_result": True, **_where(within)}
    within.app.send_task(waiting["task"], waiting["args"], **options)
    return in_time


def _run(within: Task, task: Task, waiting: dict[str, Any]) -> None:
    """Run an event's task here, as itself: with its own id, and with the message that this one came by."""
    request = within.request
    task.push_request(
        id=waiting["id"],
        task=task.name,
        args=waiting["args"],
        kwargs={},
        called_directly=False,
        delivery_info=request.delivery_info,
        properties=request.properties,
        hostname=request.hostname,
    )
    try:
        task.run(*waiting["args"])
    finally:
        task.pop_request()
