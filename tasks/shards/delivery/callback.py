"""A callback of the user's has the events: one of a shard after the other, at least once.

The sequence is saved after the callback returned. A pod that dies in between, or that does not know yet that it lost
the shard, calls again what was called. What a callback raises is logged, and the event counts as handed on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tasks.shards.delivery.backlog import Backlog
    from tasks.shards.gateway.session import Event

Callback: TypeAlias = "Callable[[Event], Awaitable[None] | None]"
logger = logging.getLogger(__name__)


def is_cancelled() -> bool:
    """Whether somebody has cancelled this task; else it is the callback's own doing."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def call_back(backlog: Backlog, callback: Callback, holds: Callable[[], bool], done: Callable[[], None]) -> None:
    """Call for each event that may go on, until there is none.

    Args:
        backlog: of one shard; its `calling` is true from before this begins, so that no second one does, until it ends.
        callback: a function that returns at once, or a coroutine's.
        holds: whether the lease still covers the shard.
        done: told after each.
    """
    try:
        while backlog.standing == "serves" and backlog.chapters and not backlog.chapters[0].reads and holds():
            item = backlog.chapters[0].uncalled()
            if item is None:
                return
            try:
                waits = callback(item.event)
                if inspect.isawaitable(waits):
                    await waits
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                logger.exception("shards: the callback failed over %s of shard %s", item.event.name, backlog.slot)
            item.called = True
            done()
    finally:
        backlog.calling = False
