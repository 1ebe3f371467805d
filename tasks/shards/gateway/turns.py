"""Which shards of a pod may wait for the gate with an open socket: one of each bucket, the lowest first.

The gate decides among all pods; a pod sends it the first of its own. So no more sockets stand idle than there are
buckets: Discord drops those that say nothing for long. In one loop; nothing is kept when nobody waits.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

Place = tuple[int, int]
"""(0 for a target that serves and 1 for a pending one, shard): lower goes first."""


class Turns:
    """See the module."""

    def __init__(self, buckets: Callable[[], int]) -> None:
        """`buckets`: how many there are (max_concurrency); may change."""
        self._buckets = buckets
        self._at_it: list[int] = []
        self._waiting: list[tuple[Place, asyncio.Future[None]]] = []

    def __len__(self) -> int:
        """How many wait or have their turn."""
        return len(self._waiting) + len(self._at_it)

    @asynccontextmanager
    async def turn(self, place: Place) -> AsyncGenerator[None]:
        """Wait for the turn; it lasts as long as the block."""
        shard = place[1]
        if self._is_free(shard) and not any(
            other < place and self._same(other[1], shard) for other, _ in self._waiting
        ):
            self._at_it.append(shard)
        else:
            await self._wait(place)
        try:
            yield
        finally:
            self._at_it.remove(shard)
            self._next()

    async def _wait(self, place: Place) -> None:
        turn = asyncio.get_running_loop().create_future()
        entry = (place, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it came at the same moment
                self._at_it.remove(place[1])
                self._next()
            raise
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def _next(self) -> None:
        """Give a turn to each who may have one now."""
        for entry in sorted(self._waiting, key=lambda waiting: waiting[0]):
            (_, shard), turn = entry
            if self._is_free(shard) and not turn.done():  # done: it was cancelled, and does not know yet
                self._at_it.append(shard)
                self._waiting.remove(entry)
                turn.set_result(None)

    def _is_free(self, shard: int) -> bool:
        return not any(self._same(shard, other) for other in self._at_it)

    def _same(self, one: int, other: int) -> bool:
        return (one - other) % max(1, self._buckets()) == 0
