"""Sessions as Redis keeps them: what a pod needs to resume a shard. They are written by DELIVER alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.shards.delivery import calls
from tasks.shards.gateway.session import Session

if TYPE_CHECKING:
    from tasks.shards.delivery.pipeline import Pipeline
    from tasks.shards.vocabulary import Slot


class Sessions:
    """Reads them; keeps nothing."""

    def __init__(self, redis: Pipeline, made: calls.Calls) -> None:
        """Nothing is sent."""
        self._redis, self._calls = redis, made

    async def load(self, slot: Slot) -> Session | None:
        """A shard's session, up to the event that was handed on last; None when there is none, or Discord dropped it.

        To be asked after the CLAIM, which ends all that was done under older fences. Raises what Redis raises.
        """
        (answer,) = await self._redis.ask([self._calls.session(slot)])
        if isinstance(answer, Exception):
            raise answer
        found = calls.read_session(answer)
        return Session(*found) if found else None
