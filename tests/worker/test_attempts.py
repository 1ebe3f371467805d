# pyright: basic
"""Failures: which are tried again, and what becomes of the others. On all pools, at both gates."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

import throttle
from tests.worker.conftest import APP, on_every_pool
from throttle.dead import DeadLetters, Letter
from throttle.errors import ConfigurationError, PermanentError, TemporaryError
from throttle.policy import Backoff, Retries, parse_retries
from throttle.worker.attempts import backoff_of, kind, pause_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.worker.conftest import Fleet

QUICK = {"default": [3, 0.01, 0.01], "temporary": ["ConnectionError"], "permanent": ["BrokenPipeError"]}


# ---------------------------------------------------------------- the policy


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app with a policy by default, for a queue, and of tasks of its own."""
    made = Celery("tries", broker="redis://localhost:1", set_as_current=False)
    retries = Retries(Backoff(3, 1, 600), {"quick": Backoff(5, 0.5, 60)}, (OSError,), (ConnectionError, "KeyError"))
    throttle.install(made, retries=retries)
    made.task(shared=False, name="plain")(work)
    made.task(shared=False, name="own", max_retries=7, retry_backoff=2, retry_backoff_max=9, temporary=(KeyError,))(
        work
    )
    made.task(shared=False, name="endless", max_retries=None)(work)
    made.finalize()
    yield made
    made.close()


def work() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("task", "error", "expected"),
    [
        ("plain", TemporaryError, "temporary"),
        ("plain", PermanentError, "permanent"),
        ("plain", TimeoutError, "temporary"),  # an OSError
        ("plain", ConnectionResetError, "permanent"),  # named as both
        ("plain", KeyError, "permanent"),
        ("own", KeyError, "temporary"),  # the task goes first
        ("plain", ValueError, ""),
        ("plain", MemoryError, ""),
    ],
)
def test_what_an_error_is(app: Celery, task: str, error: type[Exception], expected: str) -> None:
    assert kind(app.tasks[task], error) == expected


def test_task_then_queue_then_default(app: Celery) -> None:
    assert backoff_of(app.tasks["plain"], "celery") == Backoff(3, 1, 600)
    assert backoff_of(app.tasks["plain"], "quick") == Backoff(5, 0.5, 60)
    assert backoff_of(app.tasks["own"], "quick") == Backoff(7, 2, 9)
    assert backoff_of(app.tasks["endless"], "quick").max_retries > 10**6


def test_pauses_grow_to_the_longest_and_are_spread_over_all_of_it(app: Celery) -> None:
    backoff = Backoff(9, 1, 100)
    assert [backoff.pause_s(retries) for retries in (0, 1, 2, 6, 7, 99)] == [1, 2, 4, 64, 100, 100]
    task = app.tasks["plain"]
    pauses = [pause_s(task, backoff, ValueError()) for _ in range(2000)]
    assert 0 <= min(pauses) < 0.05
    assert 0.95 < max(pauses) <= 1
    assert 0.45 < statistics.mean(pauses) < 0.55
    assert all(30 <= pause_s(task, backoff, TemporaryError("later", after_s=30)) <= 31 for _ in range(100))
    task.retry_jitter = False
    assert pause_s(task, backoff, ValueError()) == 1


@pytest.mark.parametrize("text", ["quick", "quick=3/1", "quick=a/1/2", "quick=3.5/1/2", "quick=3/1/inf"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises((ValueError, ConfigurationError)):
        Retries(queues=parse_retries(text))


@pytest.mark.parametrize("backoff", [Backoff(-1), Backoff(3, 2, 1), Backoff(3, -1, 1), Backoff(5000)])
def test_what_cannot_be_meant_is_refused(backoff: Backoff) -> None:
    with pytest.raises(ConfigurationError, match="retries of default"):
        Retries(backoff)


# ---------------------------------------------------------------- with workers


def start(fleet: Fleet, pool: str, **install: Any) -> None:
    """A pod with this policy."""
    fleet.start("one", pool=pool, WORKLOAD_INSTALL=json.dumps({"retries": QUICK, **install}))


def letters(fleet: Fleet) -> dict[str, Letter]:
    """The dead letters by their tasks."""
    return {letter.task_id: letter for letter in DeadLetters(fleet.operations)}


def starts(fleet: Fleet, *tasks: str) -> list[int]:
    """How often each was begun."""
    return [fleet.started(task) for task in tasks]


def mend_and_requeue(fleet: Fleet, letter: Letter) -> None:
    """Send a letter again: its tries begin anew, and its story goes on."""
    (outcome,) = DeadLetters(fleet.operations).requeue([letter.id], by="a test")
    assert outcome.error == ""
    fleet.wait(lambda: letters(fleet).get(letter.task_id), "dead again")
    again = letters(fleet)[letter.task_id]
    assert again.id != letter.id
    assert fleet.started(letter.task_id) == 8
    why = [failure.why for failure in again.history]
    assert why.count("requeued by hand") == 1
    assert [name for name in why if name.startswith("try")] == ["try 1", "try 2", "try 3"] * 2


def story(fleet: Fleet, pool: str, gate: str) -> None:
    """Every way of failing, side by side."""
    start(fleet, pool, gate=gate)
    passing = fleet.send("failing", "temporary", 2)
    endless = fleet.send("failing", "temporary")
    permanent = fleet.send("failing", "permanent")
    plain = fleet.send("failing", "plain")
    listed = fleet.send("failing", "listed", 1)
    hopeless = fleet.send("failing", "hopeless")
    own = fleet.send("failing_once", "temporary")
    celerys = fleet.send("automatic", "plain")
    stopped = fleet.send("automatic", "permanent")
    quiet = fleet.send("quiet")
    fleet.wait_done(passing, listed)
    fleet.wait(lambda: len(letters(fleet)) >= 5, "dead letters")
    fleet.wait(lambda: starts(fleet, plain, hopeless, quiet) == [1, 1, 2] and fleet.counts().busy == 0, "all ended")
    assert starts(fleet, passing, endless, permanent, listed, own, celerys, stopped) == [3, 4, 1, 2, 2, 3, 1]
    found = letters(fleet)
    assert {task: letter.reason for task, letter in found.items()} == {
        endless: "retries exhausted",
        permanent: "permanent error",
        own: "retries exhausted",
        celerys: "retries exhausted",
        stopped: "permanent error",
    }
    history = found[endless].history
    assert [failure.why for failure in history] == ["try 1", "try 2", "try 3", "retries exhausted"]
    assert all("TemporaryError: try again" in failure.text for failure in history)
    assert all(failure.member.startswith("one#") for failure in history)
    assert "PermanentError: never" in found[permanent].history[-1].text
    assert fleet.held() == 0
    assert (fleet.client.hlen("unacked"), fleet.client.zcard("unacked_index")) == (0, 0)
    mend_and_requeue(fleet, found[endless])


@on_every_pool
def test_failures_at_the_take(fleet: Fleet, pool: str) -> None:
    story(fleet, pool, "take")


@on_every_pool
def test_failures_at_the_other_gate(fleet: Fleet, pool: str) -> None:
    story(fleet, pool, "requeue")


def test_an_error_that_cannot_be_pickled_is_known_by_its_name(fleet: Fleet) -> None:
    """What a child cannot send to its parent is judged all the same."""
    start(fleet, "prefork", retries={**QUICK, "permanent": [f"{APP}.Unlike"]})
    task = fleet.send("failing", "hopeless")
    fleet.wait(lambda: letters(fleet).get(task), "a dead letter")
    assert letters(fleet)[task].reason == "permanent error"


@pytest.mark.parametrize("gate", ["take", "requeue"])
def test_what_ends_the_last_try_from_outside_is_not_its_failure(fleet: Fleet, gate: str) -> None:
    """A child that is lost over the last try is delivered again, as over any other."""
    start(fleet, "prefork", gate=gate)
    task = fleet.send("ends_in_its_last_try", "its process ends")
    fleet.wait(lambda: fleet.started(task) >= 3, "its last try again")
    fleet.client.set("mended", 1)
    fleet.wait_done(task)
    assert fleet.dead() == []


def test_a_death_between_the_retry_and_the_acknowledgement_doubles_the_try_at_most(fleet: Fleet) -> None:
    """Both messages are there, and each is done to its end."""
    start(fleet, "prefork")
    task = fleet.send("dies_between")
    fleet.wait(lambda: fleet.workers.pods[0].exit_code is not None, "the death")
    fleet.start("two")
    fleet.wait(lambda: fleet.workers.done().count(task) == 3, "the try, and two retries of it")
    fleet.wait(lambda: fleet.held() == 0, "nothing held")
    assert (fleet.started(task), fleet.waiting(), fleet.dead()) == (4, 0, [])
