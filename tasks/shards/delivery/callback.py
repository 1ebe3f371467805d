"""A callback of the user's has the events: one of a shard after the other, at least once.

The sequence is saved after the callback returned. A pod that dies in between, or that does not know yet that it lost
the shard, calls again what was called. What a callback raises is logged, and the event counts as handed on. A callback
that still runs when the shard is closed is cancelled: whoever has the shard next calls again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tasks.shards.beside import Beside
    from tasks.shards.delivery.backlog import Backlog
    from tasks.shards.gateway.session import Event
    from tasks.shards.vocabulary import Slot

Callback: TypeAlias = "Callable[[Event], Awaitable[None] | None]"
logger = logging.getLogger(__name__)


class Callbacks:
    """Of one outbox: at most one for each shard."""

    def __init__(self, callback: Callback, holds: Callable[[Slot, int], bool], beside: Beside) -> None:
        """`holds`: see `holder.Holder`; `beside`: where they run."""
        self._callback, self._holds, self._beside = callback, holds, beside
        self._running: dict[Slot, asyncio.Task[None]] = {}

    def go_on(self, backlog: Backlog, done: Callable[[], None]) -> None:
        """Call for what a shard has, unless that is under way; `done` is told after each event."""
        if backlog.standing == "serves" and not backlog.calling:
            slot, backlog.calling = backlog.slot, True
            holds = partial(self._holds, slot, backlog.fence)
            self._running[slot] = self._beside.spawn(call_back(backlog, self._callback, holds, done))

    def end(self, slot: Slot) -> None:
        """The shard is closed."""
        running = self._running.pop(slot, None)
        if running is not None:
            running.cancel()


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
