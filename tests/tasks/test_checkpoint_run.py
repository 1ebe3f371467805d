"""A run's use of its checkpoint, on real stores: what a task gets back, and what a store that fails costs it."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tasks.checkpoints import Checkpoint, Limits, StoreAway, Superseded, TooLarge
from tasks.checkpoints.run import Surroundings
from tests.support.waiting import wait_until
from tests.tasks.stores import InEtcd, InRedis, new_id

if TYPE_CHECKING:
    from app.local.servers import Kind, Server
    from tasks.checkpoints import CheckpointStore, Status

LIMITS = Limits(every_s=0.0, max_bytes=2000, patience_s=0.0)


@pytest.fixture
def place(servers: dict[Kind, Server]) -> InRedis:
    """A fleet without checkpoints."""
    return InRedis(servers["valkey"])


def run(
    store: CheckpointStore | None, task: str, *, limits: Limits = LIMITS, required: bool = False, **around: Any
) -> Checkpoint:
    """A run's checkpoint, not entered yet."""
    return Checkpoint(store, Surroundings(task, "t", 1, **around), limits, required=required)


def stopped(_error: BaseException) -> Status:
    """What ends this run is no failure."""
    return "stopped"


def interrupted_after(checkpoint: Checkpoint, settled: list[int]) -> None:
    """Five notes, and an error."""
    with checkpoint:
        for step in range(5):
            assert not checkpoint.note(progress=step / 10, step=step)
        assert settled == []
        raise KeyError


def test_the_next_run_gets_what_was_saved_last(place: InRedis) -> None:
    task = new_id()
    with run(place.store(), task) as first:
        assert first.load() is None
        assert first.save(progress=0.62, offset=1284, name="é\n\0", deep={"a": [1, None, True, 1.5]})
    with run(place.store(), task) as second:
        assert second.load() == {"offset": 1284, "name": "é\n\0", "deep": {"a": [1, None, True, 1.5]}}
        assert second.progress == 0.62
        second.finish()
    with run(place.store(), task) as third:
        assert third.load() is None


def test_an_error_saves_what_was_noted_after_it_was_settled(place: InRedis) -> None:
    task = new_id()
    settled: list[int] = []
    slow = Limits(every_s=3600, max_bytes=2000, patience_s=0)
    first = run(place.store(), task, limits=slow, settle=lambda: settled.append(1), status_of=stopped)
    with pytest.raises(KeyError):
        interrupted_after(first, settled)
    assert settled == [1]
    (listed,) = place.store().list()
    assert (listed.status, listed.progress) == ("stopped", 0.4)
    with run(place.store(), task) as second:
        assert second.load() == {"step": 4}


def test_what_settles_and_fails_hides_no_error_of_the_task(place: InRedis, caplog: pytest.LogCaptureFixture) -> None:
    def settle() -> None:
        raise ZeroDivisionError

    slow = Limits(every_s=3600, max_bytes=2000, patience_s=0)
    with pytest.raises(KeyError):
        interrupted_after(run(place.store(), new_id(), limits=slow, settle=settle), [])
    (record,) = caplog.records
    assert "was not saved at its end" in record.getMessage()


def test_notes_are_saved_once_an_interval(place: InRedis) -> None:
    limits = Limits(every_s=0.2, max_bytes=2000, patience_s=0)
    with run(place.store(), new_id(), limits=limits) as checkpoint:
        begun, saved, steps = time.monotonic(), 0, 0
        while saved < 3:
            saved += checkpoint.note(progress=0.5, step=steps)
            steps += 1
        assert time.monotonic() - begun >= 0.6
        assert steps > 30


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x00\xff" * 50, "does not parse"),
        (b"[" * 100_000, "does not parse"),
        (b"null", "does not parse"),
        (b'{"layout": 1, "version": 1, "context": [1]}', "does not parse"),
        (b'{"layout": 0, "version": 1, "context": {}}', "layout is 0, this code reads 1"),
        (b'{"layout": 2, "version": 1, "context": {}}', "layout is 2, this code reads 1"),
        (b'{"layout": 1, "version": 0, "context": {}}', "version is 0, this code reads 1"),
        (b'{"layout": 1, "version": 2, "context": {}}', "version is 2, this code reads 1"),
        (b'{"layout": 1, "version": "' + b"9" * 900 + b'", "context": {}}', "version is '999"),
    ],
)
@pytest.mark.parametrize("compensates", [True, False])
def test_what_is_of_no_use_is_compensated_or_begun_anew_and_logged(
    place: InRedis, caplog: pytest.LogCaptureFixture, content: bytes, why: str, *, compensates: bool
) -> None:
    task = new_id()
    reasons: list[str] = []
    with run(place.store(), task) as first:
        first.save(progress=0.9, step=9)
    place.spoil(task, content)
    with run(place.store(), task, compensate=reasons.append if compensates else None) as second:
        assert second.load() is None
        assert second.progress == 0.0
        assert second.save(progress=0.1, step=1)
    (line,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert why in line
    assert len(line) < 250
    assert ("compensate() is called" in line) is compensates
    assert len(reasons) == int(compensates)
    with run(place.store(), task) as third:
        assert third.load() == {"step": 1}


def test_a_delivery_that_is_not_the_first_and_finds_nothing_has_expired(place: InRedis) -> None:
    reasons: list[str] = []
    with run(place.store(), new_id(), compensate=reasons.append, delivered_before=True) as checkpoint:
        assert checkpoint.load() is None
    assert reasons == ["it has expired, or none was saved"]
    with run(place.store(), new_id(), compensate=reasons.append) as checkpoint:
        assert checkpoint.load() is None
    assert len(reasons) == 1


def test_what_compensate_raises_ends_the_task_and_it_is_asked_again(place: InRedis) -> None:
    task, asked = new_id(), list[str]()

    def undo(reason: str) -> None:
        asked.append(reason)
        if len(asked) == 1:
            raise ZeroDivisionError

    with run(place.store(), task) as first:
        first.save(progress=0.5, step=5)
    place.spoil(task, b"spoilt")
    with pytest.raises(ZeroDivisionError), run(place.store(), task, compensate=undo) as second:
        second.load()
    with run(place.store(), task, compensate=undo) as third:
        assert third.load() is None
    assert asked == ["it does not parse"] * 2


def test_a_run_that_fails_before_it_has_loaded_leaves_all_as_it_was(place: InRedis) -> None:
    task = new_id()
    with run(place.store(), task) as first:
        first.save(progress=0.5, step=5)
    with pytest.raises(KeyError), run(place.store(), task):
        raise KeyError
    (listed,) = place.store().list()
    assert (listed.status, listed.progress) == ("failed", 0.5)
    with run(place.store(), task) as third:
        assert third.load() == {"step": 5}


def test_what_is_too_large_is_not_saved_and_what_was_saved_before_stays(
    place: InRedis, caplog: pytest.LogCaptureFixture
) -> None:
    task = new_id()
    with run(place.store(), task) as checkpoint:
        assert checkpoint.save(progress=0.5, step=5)
        assert not checkpoint.save(progress=0.6, step=6, more="x" * 2000)
        assert not checkpoint.note(progress=0.7, step=7, more="x" * 2000)
    assert [r.getMessage() for r in caplog.records if "allowed are 2000 (CHECKPOINT_MAX_BYTES)" in r.getMessage()]
    assert len(caplog.records) == 1
    with run(place.store(), task) as again:
        assert again.load() == {"step": 5}
    with pytest.raises(TooLarge), run(place.store(), task, required=True) as strict:
        strict.save(progress=0.6, more="x" * 2000)


def test_an_id_that_can_have_no_checkpoint_costs_only_that(place: InRedis) -> None:
    with run(place.store(), "x" * 2000) as checkpoint:
        assert checkpoint.load() is None
        assert not checkpoint.save(progress=0.5, step=5)
    with pytest.raises(TooLarge), run(place.store(), "x" * 2000, required=True):
        pass


@pytest.mark.parametrize("context", [{"at": math.nan}, {"at": math.inf}, {"at": object()}, {"at": b"bytes"}])
def test_a_context_that_is_no_json_is_a_fault_of_the_task(place: InRedis, context: dict[str, Any]) -> None:
    with run(place.store(), new_id()) as checkpoint, pytest.raises((ValueError, TypeError)):
        checkpoint.save(progress=0.5, **context)


@pytest.mark.parametrize(("told", "kept"), [(-1, 0.0), (2, 1.0), (math.nan, 0.0), (True, 1.0)])
def test_progress_is_between_nothing_and_all(place: InRedis, told: float, kept: float) -> None:
    with run(place.store(), new_id()) as checkpoint:
        checkpoint.save(progress=told)
        (listed,) = place.store().list()
        assert (checkpoint.progress, listed.progress) == (kept, kept)


def test_a_ghost_is_ended_and_writes_nothing(place: InRedis) -> None:
    task = new_id()
    with run(place.store(), task, rightful=lambda: False) as ghost:
        with run(place.store(), task) as heir:
            heir.save(progress=0.2, step=2)
        with pytest.raises(Superseded, match="this run ends"):
            ghost.save(progress=0.9, step=9)
    with run(place.store(), task) as after:
        assert after.load() == {"step": 2}


def test_the_rightful_run_wins_over_a_ghost_that_opened_later(place: InRedis) -> None:
    task = new_id()
    with run(place.store(), task, rightful=lambda: True) as heir:
        heir.save(progress=0.2, step=2)
        with run(place.store(), task, rightful=lambda: False) as ghost:
            assert heir.save(progress=0.3, step=3)
            with pytest.raises(Superseded):
                ghost.save(progress=0.9, step=9)
        assert heir.save(progress=0.4, step=4)
    with run(place.store(), task) as after:
        assert after.load() == {"step": 4}


def test_where_nobody_can_tell_who_is_refused_goes_on_and_saves_nothing_more(
    place: InRedis, caplog: pytest.LogCaptureFixture
) -> None:
    task = new_id()
    with run(place.store(), task) as first, run(place.store(), task) as second:
        second.save(progress=0.2, step=2)
        for step in range(3):
            assert not first.save(progress=0.9, step=step)
        first.finish()
    assert sum("saves nothing more" in record.getMessage() for record in caplog.records) == 1
    with run(place.store(), task) as after:
        assert after.load() == {"step": 2}


@pytest.mark.parametrize("rightful", [True, None])
def test_a_checkpoint_that_was_lost_under_its_run_is_made_again(place: InRedis, *, rightful: bool | None) -> None:
    task = new_id()
    with run(place.store(), task, rightful=lambda: rightful) as checkpoint:
        checkpoint.save(progress=0.2, step=2)
        place.lose()
        assert checkpoint.save(progress=0.3, step=3)
    with run(place.store(), task) as after:
        assert after.load() == {"step": 3}


def test_without_a_store_everything_works_and_nothing_is_kept() -> None:
    with run(None, "t", required=True) as checkpoint:
        assert checkpoint.load() is None
        assert not checkpoint.save(progress=0.5, step=1)
        checkpoint.finish()


def test_a_store_that_goes_away_costs_one_line_and_no_work(
    own_place: InRedis | InEtcd, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.checkpoints.run.RESPITE_S", 0.2)
    task = new_id()
    with run(own_place.store(), task) as checkpoint:
        assert checkpoint.save(progress=0.2, step=2)
        own_place.server.kill()
        for step in range(3, 100):
            assert not checkpoint.note(progress=step / 100, step=step)
            time.sleep(0.01)
        assert sum(record.levelno >= logging.WARNING for record in caplog.records) == 1
        own_place.server.start()
        wait_until(lambda: checkpoint.note(progress=0.99, step=99), 20, what="the note to be saved", every_s=0.1)
    with run(own_place.store(), task) as after:
        assert after.load() == {"step": 99}


def test_a_run_that_begins_while_the_store_is_away_saves_once_it_is_back(
    own_place: InRedis | InEtcd, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.checkpoints.run.RESPITE_S", 0.2)
    task = new_id()
    own_place.server.kill()
    with pytest.raises(StoreAway), run(own_place.store(), task, required=True):
        pass
    with run(own_place.store(), task) as checkpoint:
        assert checkpoint.unread
        assert checkpoint.load() is None
        assert sum(record.levelno >= logging.WARNING for record in caplog.records) == 1
        own_place.server.start()
        wait_until(lambda: checkpoint.note(progress=0.5, step=5), 20, what="the note to be saved", every_s=0.1)
    (listed,) = own_place.store().list()
    assert json.loads(json.dumps(listed.progress)) == 0.5


def test_a_store_that_comes_back_within_the_patience_is_read(own_place: InRedis | InEtcd) -> None:
    task = new_id()
    with run(own_place.store(), task) as first:
        first.save(progress=0.5, step=5)
    own_place.process.pause()
    threading.Timer(1.5, own_place.process.resume).start()
    with run(own_place.store(), task, limits=Limits(every_s=0, patience_s=20)) as second:
        assert second.load() == {"step": 5}
