# pyright: basic
"""Answers of pool processes that come in pieces, with Celery's own reader on real pipes and a real hub."""

from __future__ import annotations

import os
import pickle
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from celery.concurrency.asynpool import ResultHandler
from kombu.asynchronous.hub import Hub

from throttle.worker.pipes import replace_reader

if TYPE_CHECKING:
    from collections.abc import Iterator


class Pool:
    """As much of a pool as has to do with its pipes: one process' end of one."""

    def __init__(self, *, ours: bool) -> None:
        """Celery's reader, or ours."""
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.answers: list[Any] = []
        handler: Any = ResultHandler.__new__(ResultHandler)
        self._result_handler = handler
        self._track_child_process = None
        handler.fileno_to_outq = {self.reading: SimpleNamespace(pid=0)}
        handler.on_state_change = self.answers.append
        if ours:
            replace_reader(self)
        self.hub = Hub()
        self.register()

    def register(self) -> None:
        """As at each connection to the broker."""
        self._result_handler.register_with_event_loop(self.hub)
        self.hub.add_reader(self.reading, self._result_handler.handle_event, self.reading)

    def turn(self) -> None:
        """Let the hub look at the pipe, through whatever is registered for it."""
        callback, arguments = self.hub.readers[self.reading]
        if hasattr(callback, "send"):
            next(callback, None)
        else:
            callback(*arguments)

    def close(self) -> None:
        """The end."""
        self.hub.close()
        os.close(self.reading)
        os.close(self.writing)


def frame(message: object) -> bytes:
    body = pickle.dumps(message)
    return struct.pack(">i", len(body)) + body


@pytest.fixture
def pools() -> Iterator[dict[bool, Pool]]:
    made = {ours: Pool(ours=ours) for ours in (False, True)}
    yield made
    for pool in made.values():
        pool.close()


def test_a_part_is_kept_when_the_hub_is_reset(pools: dict[bool, Pool]) -> None:
    """The contrast is Celery's own reader: what it had read is gone, and the rest is no answer."""
    whole = frame(("READY", "x" * 300))
    for pool in pools.values():
        os.write(pool.writing, whole[:100])
        pool.turn()
        pool.hub.reset()
        pool.register()
        os.write(pool.writing, whole[100:])
    pools[True].turn()
    assert pools[True].answers == [("READY", "x" * 300)]
    pools[False].turn()
    assert pools[False].answers == []


def test_answers_one_after_the_other(pools: dict[bool, Pool]) -> None:
    pool = pools[True]
    for number in range(3):
        whole = frame(("READY", number))
        os.write(pool.writing, whole[:3])
        pool.turn()
        os.write(pool.writing, whole[3:])
        pool.turn()
    assert pool.answers == [("READY", 0), ("READY", 1), ("READY", 2)]
