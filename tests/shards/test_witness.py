"""A driver acts on its witness' word in the name of who is over, and in nobody else's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from app.shards.commands import Reached
from tasks.shards.driver import Driver
from tasks.shards.keys import Keys
from tasks.shards.liveness import PodSeen, Reading
from tasks.shards.operations import Known, Numbers, Operations
from tasks.shards.simulated import Simulated
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tasks.shards.vocabulary import Slot
    from tests.support.servers import Client

LONG = Numbers(ttl_ms=600_000, scan_ms=0)
"""Nobody dies of silence while this lasts."""


class SaysThatAIsOver:
    """A witness."""

    async def read(self) -> Reading | None:
        """Asked for just now."""
        return Reading(time.monotonic(), {"a": PodSeen("a", ready=False, over=True)})

    async def close(self) -> None:
        """Nothing to do."""


class Resumes:
    """Every session goes on."""

    async def resumes(self, slot: Slot) -> bool:
        """Yes."""
        del slot
        return True

    async def identified(self, slot: Slot) -> None:
        """Never needed."""

    async def close(self) -> None:
        """Nobody asks any more."""


def test_who_is_over_leaves_and_who_says_so_stays(valkey: Client) -> None:
    keys = Keys("1")
    a = Reached(valkey, Operations(keys, LONG, "a#1"))
    a.operations.server = str(valkey.info("server")["run_id"])  # for another one would arm the guard
    a.ask(a.operations.sync(Known(), (), limit=9, draining=False, seen=-1))
    valkey.hdel(keys.state(), "guard")
    a.ask(a.operations.budget(1000, 900, 1000, 1))
    assert a.ask(a.operations.target(2)) == 1
    pending = a.look().head.pending
    assert pending is not None
    assert all(a.ask(a.operations.claim(pending.version, 9, [0, 1])))

    b = Driver(valkey.url, Operations(keys, LONG, "b#1"), Simulated(Resumes()), witness=SaysThatAIsOver)
    b.start()
    try:
        wait_until(lambda: {bind.member for bind in a.look().view.binds.values()} == {"b#1"}, 10.0)
        wait_until(lambda: a.look().head.active is not None, 10.0)
        looked = a.look()
        assert [member.name for member in looked.view.members] == ["b#1"]
        assert {bind.state for bind in looked.view.binds.values()} == {"ready"}
    finally:
        b.stop()
