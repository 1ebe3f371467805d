"""A driver goes on after a fault of its own, and ends also before it has begun."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.shards.driving import KEYS, driver, member
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import pytest

    from tests.support.servers import Client


def test_an_answer_that_cannot_be_read_is_asked_for_again(valkey: Client, caplog: pytest.LogCaptureFixture) -> None:
    """As of another version of this program. Who asked no more would lose its lease, and hold its shards for ever."""
    a, b = member(valkey, "a#1"), driver(valkey, "b#1")
    assert a.ask(a.operations.target(2)) == 1
    pending = a.look().head.pending
    assert pending is not None
    valkey.hset(KEYS.binds(pending.version), "7", "nonsense")
    b.start()
    try:
        wait_until(lambda: "not enough values" in caplog.text, 10.0)
        valkey.hdel(KEYS.binds(pending.version), "7")
        wait_until(lambda: a.look().view.binds, 10.0)
    finally:
        b.stop()
    assert "Traceback" in caplog.text


def test_one_that_is_ended_before_it_has_begun_is_over(valkey: Client) -> None:
    b = driver(valkey, "b#1")
    b.start()
    b.stop()
    assert "headroom-shards" not in {thread.name for thread in threading.enumerate()}
