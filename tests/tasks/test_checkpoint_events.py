"""What a run tells of its checkpoint, on a real store: each outcome of a look, a save and a compensation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tasks.checkpoints import StoreAway, Superseded
from tests.tasks.stores import InRedis, new_id
from tests.tasks.test_checkpoint_run import place, run
from throttle import events

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tasks.checkpoints import Checkpoint
    from tests.support.servers import StartServer

__all__ = ["place"]


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """The events, each as its name and its outcome."""
    told: list[str] = []

    def hear(event: events.Event, values: Sequence[object]) -> None:
        assert values[0] == "t", "the task's name"
        told.append(f"{event.name.removeprefix('checkpoint ')}: {values[1]}")

    events.subscribe(hear)
    yield told
    events.unsubscribe(hear)


def test_a_first_run_and_one_that_goes_on(place: InRedis, heard: list[str]) -> None:
    task = new_id()
    with run(place.store(), task) as first:
        first.load()
        first.load()
        first.save(progress=0.5, step=5)
    with run(place.store(), task) as second:
        second.load()
        second.finish()
    assert heard == ["loaded: none", "saved: saved", "loaded: found"]


def test_what_cannot_be_gone_on_from_is_compensated(place: InRedis, heard: list[str]) -> None:
    task, asked = new_id(), list[str]()

    def undo(reason: str) -> None:
        asked.append(reason)
        if len(asked) == 1:
            raise ZeroDivisionError

    with run(place.store(), task, compensate=undo, delivered_before=True) as first, pytest.raises(ZeroDivisionError):
        first.load()
    with run(place.store(), task) as second:
        second.save(progress=0.5, step=5)
    place.spoil(task, b"spoilt")
    with run(place.store(), task, compensate=undo) as third:
        third.load()
    assert heard == [
        "loaded: missing", "compensated: failed", "saved: saved", "loaded: unusable", "compensated: done",
    ]  # fmt: skip


def fail_after_a_save(checkpoint: Checkpoint) -> None:
    """A run that saves once, and fails."""
    with checkpoint:
        checkpoint.save(progress=0.2, step=2)
        raise KeyError


def test_a_ghost_is_refused_and_the_last_save_of_a_failed_run_counts(place: InRedis, heard: list[str]) -> None:
    task = new_id()
    with run(place.store(), task, rightful=lambda: False) as ghost:
        with pytest.raises(KeyError):
            fail_after_a_save(run(place.store(), task))
        with pytest.raises(Superseded):
            ghost.save(progress=0.9, step=9)
    assert heard == ["saved: saved", "saved: saved", "saved: refused"]


def test_a_store_that_is_away_is_told(start_server: StartServer, heard: list[str]) -> None:
    server = start_server("valkey")
    place, task = InRedis(server), new_id()
    with run(place.store(), task) as first:
        server.kill()
        assert not first.save(progress=0.5, step=5)
    with run(place.store(), task) as second:
        assert second.load() is None
    with pytest.raises(StoreAway), run(place.store(), task, required=True):
        pass
    assert heard == ["saved: away", "loaded: away"]


def test_a_task_that_is_called_directly_tells_nothing(heard: list[str]) -> None:
    with run(None, "id") as checkpoint:
        checkpoint.load()
        checkpoint.save(progress=0.5, step=5)
    assert heard == []
