"""A driver acts on its witness' word in the name of who is over and nobody else's, and for as long as it is said."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tasks.shards.liveness import PodSeen, Reading
from tests.shards.driving import driver, member
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.servers import Client


class SaysThatAIsOver:
    """A witness."""

    async def read(self) -> Reading | None:
        """Asked for just now."""
        return Reading(time.monotonic(), {"a": PodSeen("a", ready=False, over=True)})

    async def close(self) -> None:
        """Nothing to do."""


class SaysWhetherBIsReady:
    """Another."""

    ready = False

    async def read(self) -> Reading | None:
        """Asked for just now."""
        return Reading(time.monotonic(), {"b": PodSeen("b", ready=self.ready, over=False)})

    async def close(self) -> None:
        """Nothing to do."""


def test_who_is_over_leaves_and_who_says_so_stays(valkey: Client) -> None:
    a = member(valkey, "a#1")
    assert a.ask(a.operations.target(2)) == 1
    pending = a.look().head.pending
    assert pending is not None
    assert all(a.ask(a.operations.claim(pending.version, 9, [0, 1])))

    b = driver(valkey, "b#1", witness=SaysThatAIsOver)
    b.start()
    try:
        wait_until(lambda: {bind.member for bind in a.look().view.binds.values()} == {"b#1"}, 10.0)
        wait_until(lambda: a.look().head.active is not None, 10.0)
        looked = a.look()
        assert [member.name for member in looked.view.members] == ["b#1"]
        assert {bind.state for bind in looked.view.binds.values()} == {"ready"}
    finally:
        b.stop()


def test_who_becomes_ready_gets_shards_though_nothing_else_changes(valkey: Client) -> None:
    """What Redis told is kept as it was told: a word of the witness that is over leaves nothing behind."""
    a, witness = member(valkey, "a#1"), SaysWhetherBIsReady()
    b = driver(valkey, "b#1", witness=lambda: witness)
    b.start()
    try:
        wait_until(lambda: ("b#1", True) in [each[::2] for each in b.state.view.members], 10.0)
        assert a.ask(a.operations.target(9)) == 1
        wait_until(lambda: b.state.head.pending is not None, 10.0)
        assert not a.look().view.binds
        witness.ready = True
        wait_until(lambda: a.look().view.binds, 10.0)
    finally:
        b.stop()
