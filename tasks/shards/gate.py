"""Waits for the cluster's identify gate on behalf of one shard. Asks Redis as often as Redis says, and no more often.

A grant is used within a quarter of a second of its request or not at all: another pod may identify five seconds after
the gate gave it. A connection that ends while it waits takes nothing with it but the wait: the question that is under
way is answered, and its answer is not used.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tasks.shards.operations import Call
    from tasks.shards.vocabulary import Slot

    class Telling(Protocol):
        """Who is told of answers."""

        def __call__(self, slot: Slot, wait_ms: int | None, since_s: float, *, in_time: bool) -> None:
            """As `telling.Teller.gate`."""
            ...


logger = logging.getLogger(__name__)

USE_S = 0.25
AGAIN_S = 0.5
REFUSED_S = 2.0
NOT_HELD, NO_BUDGET, UNKNOWN, STOPPED = -1, -2, -3, -4
"""What the script answers beside a wait in ms and 0, which is yes."""


class Gate:
    """Of one member."""

    def __init__(self, ask: Callable[[Call], Coroutine[Any, Any, int | None]], tell: Telling) -> None:
        """`ask`: carries an operation out, None when there is no answer; `tell`: is told of each answer."""
        self._ask, self._tell = ask, tell
        self._asking: set[asyncio.Task[int | None]] = set()
        self._spent = False

    async def wait(self, slot: Slot, call: Call, ours: Callable[[], bool]) -> bool:
        """Until the gate opens (true), or the shard is not `ours` any more or may not identify at all (false).

        `call` is an IDENTIFY. Who was stopped gives the shard back; whoever has it next waits without a socket.
        """
        since_s = time.monotonic()
        while ours():
            asked_s = time.monotonic()
            answer = await self._answer(call)
            in_time = time.monotonic() - asked_s <= USE_S
            self._tell(slot, answer, since_s, in_time=in_time)
            if answer == 0 and in_time:
                self._spent = False
                return True
            if answer == STOPPED:
                return False
            if answer == NO_BUDGET and not self._spent:
                self._spent = True
                logger.error("shards: today's identifies are used up; who has no session waits, all others go on")
            await asyncio.sleep(_wait_s(answer))
        return False

    async def _answer(self, call: Call) -> int | None:
        asking = asyncio.create_task(self._ask(call))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return await asyncio.shield(asking)


def _wait_s(answer: int | None) -> float:
    if answer is not None and answer > 0:
        return answer / 1000
    return REFUSED_S if answer in (NO_BUDGET, UNKNOWN) else AGAIN_S
