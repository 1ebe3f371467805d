"""A worker as the first process of a PID namespace, which is what it is in a container. No engine is needed."""
# pyright: basic

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from celery import Celery

from app.container import health
from app.container.steps import zombies_of
from app.local.processes import ROOT
from app.local.servers import free_port
from tests.support.namespaces import namespace
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.local.guard import Guard, Process
    from tests.support.servers import Client

SIGTERM_BIT = 1 << (signal.SIGTERM - 1)


def children(pid: int) -> list[int]:
    """The processes that a process started or inherited, as this side of the namespace numbers them."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def field(pid: int, name: str) -> str:
    """One line of a process' status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:"))


class Contained:
    """One worker (or beat) in a namespace of its own."""

    def __init__(self, guard: Guard, folder: Path, url: str, *arguments: str, **settings: str) -> None:
        """Start it; its temporary folder is ``folder``."""
        self.folder = folder
        self.port = free_port()
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "REDIS_URL": url,
            "TMPDIR": str(folder),
            "THROTTLE_TTL": "3",
            "PULSE_EVERY": "1",
            "PROBE_PORT": str(self.port),
            **settings,
        }
        command = [*namespace(), sys.executable, "-m", "app.container", *arguments]
        self.outside: Process = guard.start("contained", command, log=folder / "log", env=environment, cwd=folder)

    @property
    def first(self) -> int:
        """The first process of the namespace, as this side numbers it."""
        return wait_until(lambda: children(self.outside.pid), what="the namespace's first process")[0]

    def handles_sigterm(self) -> bool:
        """Whether SIGTERM would reach the first process, and not be ignored by the kernel."""
        return bool(int(field(self.first, "SigCgt"), 16) & SIGTERM_BIT)

    def wait_ready(self, role: str = "worker") -> None:
        """Wait until it is well, by the health check that its container would run."""
        wait_until(
            lambda: health.complaint(role, self.port) is None,
            30,
            what=lambda: f"{role} to be up:\n{self.outside.read_log()}",
            every_s=0.1,
        )

    def stop(self) -> int:
        """SIGTERM to the first process alone, as an engine sends it; returns its exit code."""
        os.kill(self.first, signal.SIGTERM)
        return self.outside.wait(30)


@pytest.fixture
def start(guard: Guard, valkey: Client, tmp_path: Path) -> Iterator[Callable[..., Contained]]:
    """Starts first processes on an empty Valkey."""
    started: list[Contained] = []

    def begin(*arguments: str, url: str = valkey.url, **settings: str) -> Contained:
        started.append(Contained(guard, tmp_path, url, *arguments, **settings))
        return started[-1]

    yield begin
    for contained in started:
        guard.end(contained.outside, patience_s=0)


@pytest.fixture
def producer(valkey: Client) -> Iterator[Celery]:
    """A service that knows no more than the broker's address."""
    app = Celery("producer", broker=valkey.url, backend=valkey.url, set_as_current=False)
    yield app
    app.close()


WORKER = ("worker", "--concurrency=2", "--without-gossip", "--without-mingle", "--include=tests.containers.chores")


def test_sigterm_to_the_first_process_alone_drains_and_ends_with_0(
    start: Callable[..., Contained], producer: Celery, valkey: Client
) -> None:
    worker = start(*WORKER)
    worker.wait_ready()
    assert field(worker.first, "NSpid").split()[-1] == "1"
    running = producer.send_task("tasks.jobs.loads.sleep", args=[2], queue="task_queue")
    wait_until(lambda: running.state == "STARTED", 10, what="the task to start")
    pool = children(worker.first)
    os.kill(worker.first, signal.SIGTERM)
    after = producer.send_task("tasks.jobs.loads.sleep", args=[0], queue="task_queue")
    assert worker.outside.wait(30) == 0
    assert running.state == "SUCCESS"
    assert after.state == "PENDING"
    assert valkey.llen("task_queue") == 1
    assert [pid for pid in pool if Path(f"/proc/{pid}").exists()] == []
    assert not (worker.folder / "worker.alive").exists()


def test_sigterm_ends_a_start_that_still_waits_for_redis(start: Callable[..., Contained]) -> None:
    worker = start(*WORKER, url=f"redis://127.0.0.1:{free_port()}/0", THROTTLE_STARTUP_S="600")
    wait_until(worker.handles_sigterm, what="the entry point to handle SIGTERM")
    assert worker.stop() == 0


def test_what_a_task_left_behind_becomes_no_zombie_for_good(start: Callable[..., Contained], producer: Celery) -> None:
    worker = start(*WORKER)
    worker.wait_ready()
    left = [
        producer.send_task("tests.containers.chores.leave_behind", args=[0.5], queue="task_queue") for _ in range(3)
    ]
    assert [result.get(timeout=20) > 1 for result in left] == [True] * 3
    wait_until(lambda: len(zombies_of(worker.first)) == 3, what="the processes that were left behind to end")
    wait_until(lambda: not zombies_of(worker.first), 30, what="the first process to reap them")
    assert worker.stop() == 0


def test_the_pool_still_learns_that_a_child_of_its_own_was_killed(
    start: Callable[..., Contained], producer: Celery
) -> None:
    worker = start(*WORKER)
    worker.wait_ready()
    before = set(children(worker.first))
    running = producer.send_task("tests.containers.chores.slow_once", args=[str(worker.folder)], queue="task_queue")
    victim = int(wait_until(lambda: read(worker.folder / "slow-once"), 10, what="the task to run"))
    inside = {int(field(pid, "NSpid").split()[-1]): pid for pid in before}
    os.kill(inside[victim], signal.SIGKILL)
    assert running.get(timeout=30) == "second time"
    assert worker.stop() == 0


def read(file: Path) -> str:
    """A file's text, empty until it is there."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


def test_a_worker_is_well_while_it_consumes(start: Callable[..., Contained]) -> None:
    worker = start(*WORKER)
    worker.wait_ready()
    assert worker.stop() == 0
    assert (health.complaint("worker", worker.port) or "").startswith("worker does not answer")


def test_beat_as_the_first_process_sends_its_pulse_is_well_and_ends_with_0(
    start: Callable[..., Contained], valkey: Client
) -> None:
    beat = start("beat")
    beat.wait_ready("beat")
    wait_until(lambda: valkey.llen("task_queue"), 10, what="beat to send")
    assert beat.stop() == 0


def test_flower_as_the_first_process_ends_with_0(start: Callable[..., Contained]) -> None:
    port = free_port()
    flower = start("flower", "--address=127.0.0.1", f"--port={port}")
    wait_until(lambda: health.complaint("flower", port) is None, 30, what="Flower's page")
    assert flower.stop() == 0


def test_a_bad_setting_ends_the_container_with_one_line(start: Callable[..., Contained]) -> None:
    worker = start(*WORKER, THROTTLE_RATIO="2")
    assert worker.outside.wait(30) == 1
    assert worker.outside.read_log() == "headroom: THROTTLE_RATIO='2': allowed is a number above 0 and up to 1\n"


def test_other_commands_of_celery_are_passed_on(start: Callable[..., Contained]) -> None:
    report = start("report")
    assert report.outside.wait(30) == 0
    assert "celery" in report.outside.read_log()


def test_no_command_at_all_is_refused_with_the_usage(start: Callable[..., Contained]) -> None:
    nothing = start()
    assert nothing.outside.wait(30) == 2
    assert nothing.outside.read_log().startswith("usage: python3 -m app.container worker|beat|flower")


def stop_like_kubernetes(worker: Contained, folder: Path, grace_s: float) -> tuple[int, int]:
    """The preStop hook inside the namespace, SIGTERM to the first process, SIGKILL at the end: both exit codes."""
    hook = subprocess.run(
        [*enter(worker.first), sys.executable, "-m", "app", "drain", "--wait"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
        cwd=folder,
        capture_output=True,
        timeout=60,
        check=False,
    )
    os.kill(worker.first, signal.SIGTERM)
    with contextlib.suppress(TimeoutError, subprocess.TimeoutExpired):
        return hook.returncode, worker.outside.wait(grace_s)
    os.kill(worker.first, signal.SIGKILL)
    return hook.returncode, worker.outside.wait(30)


def enter(first: int) -> list[str]:
    """What runs a command beside the first process, as an exec hook does."""
    return ["nsenter", f"--target={first}", "--pid", "--mount"]


@pytest.mark.parametrize("seconds", [1.0, 600.0])
def test_a_pod_that_is_deleted_is_drained_by_its_hook(
    start: Callable[..., Contained], producer: Celery, valkey: Client, seconds: float
) -> None:
    """A short task ends; a long one is told at the deadline and is back at the head, uncounted."""
    worker = start(*WORKER, THROTTLE_DRAIN_TIMEOUT="3")
    worker.wait_ready()
    running = producer.send_task("tasks.jobs.loads.sleep", args=[seconds], queue="task_queue")
    wait_until(lambda: running.state == "STARTED", 10, what="the task to start")
    assert stop_like_kubernetes(worker, worker.folder, 20.0) == (0, 0), worker.outside.read_log()
    assert (running.state == "SUCCESS") == (seconds < 3)
    assert valkey.llen("task_queue") == int(seconds > 3)
    assert not valkey.keys("*deliveries*")


def test_sigkill_at_the_end_of_the_grace_loses_nothing(
    start: Callable[..., Contained], producer: Celery, valkey: Client
) -> None:
    """Without a deadline a long task is cut off by SIGKILL: whoever comes next finds it."""
    worker = start(*WORKER)
    worker.wait_ready()
    running = producer.send_task("tasks.jobs.loads.sleep", args=[600], queue="task_queue")
    wait_until(lambda: running.state == "STARTED", 10, what="the task to start")
    os.kill(worker.first, signal.SIGTERM)
    wait_until(lambda: "takes nothing more" in worker.outside.read_log(), 10, what="the drain to begin")
    os.kill(worker.first, signal.SIGKILL)
    assert worker.outside.wait(30) != 0
    assert valkey.llen("task_queue") == 0
    start(*WORKER).wait_ready()
    wait_until(lambda: f"sleep[{running.id}] received" in worker.outside.read_log(), 30, what="the task to come again")
