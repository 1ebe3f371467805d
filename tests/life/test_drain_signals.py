"""What each signal does to a worker under a running task, on every pool: nothing is lost, nothing is counted."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.worker.conftest import on_every_pool
from tests.worker.test_drain import nothing_is_counted, queued, reach, runs, start
from throttle.control import ask

if TYPE_CHECKING:
    from app.local.guard import Process
    from tests.worker.conftest import Fleet


def begin(fleet: Fleet, pool: str, how: str) -> tuple[Process, str]:
    """A pod without a deadline that runs a task of this kind."""
    pod = start(fleet, pool)
    task = fleet.send("draining", how)
    runs(fleet, task)
    return pod, task


def send(fleet: Fleet, pod: Process, *numbers: signal.Signals) -> None:
    """Signals to the worker's main process alone, each once the one before was noticed."""
    for number in numbers:
        before = ask(reach(fleet))
        os.kill(pod.pid, number)
        fleet.wait(lambda before=before: not pod.running or ask(reach(fleet)) != before, f"{number.name} to be noticed")


@on_every_pool
def test_a_second_sigterm_brings_the_deadline_to_now(fleet: Fleet, pool: str) -> None:
    pod, task = begin(fleet, pool, "saves")
    send(fleet, pod, signal.SIGTERM)
    assert ask(reach(fleet))["deadline_s"] is None
    os.kill(pod.pid, signal.SIGTERM)
    assert pod.wait(20) == 0, pod.read_log()
    assert queued(fleet) == [task]
    nothing_is_counted(fleet)


@on_every_pool
def test_sigint_drains_as_sigterm_does(fleet: Fleet, pool: str) -> None:
    pod, task = begin(fleet, pool, "asks")
    os.kill(pod.pid, signal.SIGINT)
    assert pod.wait(20) == 0, pod.read_log()
    assert fleet.workers.done() == [task]
    assert queued(fleet) == []
    nothing_is_counted(fleet)


def ends_cold(fleet: Fleet, pool: str, *numbers: signal.Signals) -> None:
    """What runs is cut off wherever it is, and its message is back at the head, uncounted."""
    pod, task = begin(fleet, pool, "ignores")
    send(fleet, pod, *numbers[:-1])
    os.kill(pod.pid, numbers[-1])
    assert pod.wait(20) == 1, pod.read_log()
    assert queued(fleet) == [task]
    nothing_is_counted(fleet)


@on_every_pool
def test_sigquit_is_cold(fleet: Fleet, pool: str) -> None:
    ends_cold(fleet, pool, signal.SIGQUIT)


@on_every_pool
def test_a_second_sigint_is_cold(fleet: Fleet, pool: str) -> None:
    ends_cold(fleet, pool, signal.SIGINT, signal.SIGINT)


@on_every_pool
def test_a_worker_that_is_dry_and_does_not_end_is_ended_and_told_of(fleet: Fleet, pool: str) -> None:
    pod = start(fleet, pool, arguments=("--include", "app.local.recorder,tests.life.lingers"))
    os.kill(pod.pid, signal.SIGTERM)
    assert pod.wait(30) == 0, pod.read_log()
    assert "drained, and not ended 15 s later" in pod.read_log()
    assert "in flush_for_ever" in pod.read_log()
    nothing_is_counted(fleet)
