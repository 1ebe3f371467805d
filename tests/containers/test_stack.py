"""The compose file on a real engine: it scales, and what is killed, stopped or restarted loses nothing.

One stack for all tests, which leave it with five workers: to start one takes most of the time.
"""
# pyright: basic

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest
from celery import Celery

from tests.containers.stack import Stack
from tests.support.leaks import leaked_keys
from tests.support.waiting import wait_until
from throttle.dead import DeadLetters
from throttle.keys import Keys
from throttle.scripts import Operations, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

WORKERS = 5
TTL_S = 3


@pytest.fixture(scope="module")
def running() -> Iterator[Stack]:
    """The stack as the file describes it."""
    stack = Stack(THROTTLE_TTL=str(TTL_S), THROTTLE_JOURNAL="100000")
    try:
        stack.scale()
        yield stack
    finally:
        stack.end()


@pytest.fixture
def stack(running: Stack) -> Stack:
    """The stack, scaled to five, with nothing under way."""
    if len(running.containers("worker")) != WORKERS:
        running.scale(WORKERS)
    wait_until(lambda: len(running.alive()) == WORKERS, 30, what=lambda: f"five pods: {running.alive()}")
    with running.client() as client:
        client.xtrim(Keys().journal(), 0, approximate=False)
    return running


class Work:
    """Messages that a service sends which knows no more than the broker's address, and what became of them.

    Results are read from their keys: Celery's own objects subscribe, and would go on to knock at the address of a stack
    that is gone.
    """

    def __init__(self, stack: Stack) -> None:
        """Connect to the stack's Redis."""
        self._stack = stack
        self._app = Celery("producer", broker=stack.redis_url, set_as_current=False)
        self.sent: list[str] = []

    def send(self, count: int, seconds: float) -> None:
        """Send so many tasks that wait for so long."""
        self.sent += [
            self._app.send_task("tasks.jobs.loads.sleep", args=[seconds], queue="task_queue").id for _ in range(count)
        ]

    def left(self) -> set[str]:
        """Tasks that have not succeeded."""
        return set(self.sent) - self._stack.succeeded(self.sent)

    def wait_done(self, timeout_s: float = 60) -> None:
        """Wait until every one of them has succeeded: nothing is lost."""
        wait_until(
            lambda: not self.left(), timeout_s, what=lambda: f"all tasks to succeed; left: {self.left()}", every_s=0.2
        )

    def close(self) -> None:
        """Give the connections back."""
        self._app.close()


@pytest.fixture
def work(stack: Stack) -> Iterator[Work]:
    """A producer, connected to the stack of this test."""
    sent = Work(stack)
    yield sent
    sent.close()


def test_three_workers_by_the_file_and_five_when_asked(running: Stack) -> None:
    assert running.alive() == {container[:12] for container in running.containers("worker")}
    assert len(running.alive()) == 3
    running.scale(WORKERS)
    assert len(running.alive()) == WORKERS


def test_the_worker_is_the_first_process_and_may_do_nothing_but_work(stack: Stack) -> None:
    for container in stack.containers("worker"):
        command = stack.run_in(container, "cat", "/proc/1/cmdline").split("\0")
        assert command[:4] == ["python3", "-m", "app.container", "worker"]
        status = stack.run_in(container, "cat", "/proc/1/status")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split() == ["10001"] * 4
        assert fields["Gid"].split() == ["10001"] * 4
        assert int(fields["CapEff"], 16) == 0
        assert fields["NoNewPrivs"] == "1"
        assert stack.inspect(container)["HostConfig"]["ReadonlyRootfs"] is True


def test_flower_answers_on_its_published_port_and_beat_sends_its_pulse(stack: Stack) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{stack.flower_port}/", timeout=5) as page:
        assert page.status == 200
    wait_until(lambda: f"fleet: {WORKERS} alive" in stack.logs("worker"), 30, what="a pulse", every_s=1)


def test_what_the_page_tells_one_to_type_in_a_worker_works(stack: Stack) -> None:
    worker = stack.containers("worker")[0]
    assert f"{WORKERS} nodes online" in stack.run_in(worker, "python3", "-m", "app.container", "inspect", "active")
    program = "import app.celery; from tasks.jobs.loads import sleep; print(sleep.delay(0.1).get(timeout=10))"
    assert float(stack.run_in(worker, "python3", "-c", program)) >= 0.1


def test_a_container_killed_for_good_loses_nothing_and_the_others_do_its_work(stack: Stack, work: Work) -> None:
    work.send(16, seconds=1.5)
    victim = wait_until(stack.holders, 20, what="a busy pod").pop()
    member = stack.incarnation(victim)
    stack.docker("kill", "--signal", "KILL", stack.container_of(victim))
    killed_s = time.monotonic()
    assert stack.client().hlen(Keys().held(member)) == 1
    wait_until(
        lambda: any(taken.deliveries for taken in stack.taken()), TTL_S + 10, what="what it held to be taken again"
    )
    assert time.monotonic() - killed_s <= TTL_S + 2 + 2  # ... and up to two seconds until a busy pod is free for it
    work.wait_done()
    again = [taken for taken in stack.taken() if taken.deliveries]
    assert [taken.deliveries for taken in again] == [1]
    assert again[0].pod != victim
    assert len(stack.containers("worker")) == WORKERS - 1


def test_a_crashed_worker_comes_back_under_its_name_and_nothing_is_lost(stack: Stack, work: Work) -> None:
    work.send(8, seconds=2)
    victim = wait_until(stack.holders, 20, what="a busy pod").pop()
    member = stack.incarnation(victim)
    # From outside the container: for the engine, which was not asked to stop it, that is a crash.
    os.kill(stack.state(stack.container_of(victim))["Pid"], signal.SIGKILL)
    wait_until(lambda: stack.incarnation(victim) not in ("", member), 30, what="the pod's new incarnation")
    work.wait_done()
    assert [taken.deliveries for taken in stack.taken() if taken.deliveries] == [1]
    assert len(stack.containers("worker")) == WORKERS


def test_a_task_killed_for_the_lack_of_memory_is_a_dead_letter_and_its_container_works_on(stack: Stack) -> None:
    """The kernel's killer takes what is biggest under the container's limit: the process of the task."""
    container = stack.run_worker(
        "-Q", "hungry", "-c", "1", memory="256m", THROTTLE_TTL=str(TTL_S), THROTTLE_MAX_DELIVERIES="2"
    )
    try:
        with stack.client() as client, Celery("producer", broker=stack.redis_url, set_as_current=False) as producer:
            letters = DeadLetters(Operations(client, Keys(), Rule(0.8, TTL_S * 1000, 5, 0)))
            hungry = producer.send_task("chores.devour", queue="hungry")
            wait_until(lambda: list(letters), 60, what=lambda: f"a dead letter\n{stack.docker('logs', container)}")
            (letter,) = letters
            assert (letter.task_id, letter.deliveries, letter.reason) == (hungry.id, 2, "crashed")
            assert all("signal 9 (SIGKILL)" in failure.text for failure in letter.history)
            assert stack.kernel_kills(container) >= 2
            after = producer.send_task("tasks.jobs.loads.sleep", args=[0.1], queue="hungry")
            wait_until(lambda: stack.succeeded([after.id]), 20, what="work after it")
            assert stack.state(container)["Status"] == "running"
            client.delete(Keys().dead())  # the other tests know of none
    finally:
        stack.docker("rm", "--force", container)


def test_a_stopped_worker_finishes_what_it_runs_and_ends_with_0(stack: Stack, work: Work) -> None:
    work.send(8, seconds=2)
    leaver = wait_until(stack.holders, 20, what="a busy pod").pop()
    container = stack.container_of(leaver)
    began_s = time.monotonic()
    stack.docker("stop", "--time", "60", container)
    assert time.monotonic() - began_s < 20
    state = stack.state(container)
    assert (state["Status"], state["ExitCode"], state["OOMKilled"]) == ("exited", 0, False)
    assert leaver not in stack.alive()
    work.wait_done()
    assert {taken.deliveries for taken in stack.taken()} == {0}


def test_a_redis_that_is_killed_has_kept_the_queue(stack: Stack, work: Work) -> None:
    """All that waited is done. What ended while Redis was away is done too, but Celery could not store its result."""
    work.send(20, seconds=0.5)
    (container,) = stack.containers("redis")
    before = stack.state(container)
    os.kill(before["Pid"], signal.SIGKILL)
    wait_until(lambda: stack.state(container)["Pid"] not in (0, before["Pid"]), 30, what="Redis to be restarted")
    stack.wait_healthy()
    wait_until(lambda: len(work.left()) <= WORKERS, 60, what=lambda: f"the queue to be done; left: {work.left()}")
    wait_until(lambda: not stack.holders(), 20, what="nothing held")


def test_what_is_left_behind_in_a_container_becomes_no_zombie_for_good(stack: Stack) -> None:
    container = stack.containers("worker")[0]
    stack.run_in(container, "sh", "-c", "sleep 0.1 >&- 2>&- &")

    def zombies() -> bool:
        states = stack.run_in(container, "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || true")
        return "(sleep) Z 1 " in states

    wait_until(zombies, 5, what="the process that was left behind to end")
    wait_until(lambda: not zombies(), 30, what="the worker to reap it", every_s=0.5)


def test_all_workers_stopped_at_once_leave_nothing_but_the_queue(stack: Stack, work: Work) -> None:
    work.send(12, seconds=1)
    wait_until(stack.holders, 20, what="a busy pod")
    stops = [
        threading.Thread(target=stack.docker, args=("stop", "--time", "60", container))
        for container in stack.containers("worker")
    ]
    for stop in stops:
        stop.start()
    for stop in stops:
        stop.join()
    with stack.client() as client:
        assert client.zcard(Keys().alive()) == client.zcard(Keys().draining()) == 0
        queued = {json.loads(message)["headers"]["id"] for message in client.lrange("task_queue", 0, -1)}
        assert work.left() == queued & set(work.sent)
        # kombu's own keys are not ours to judge.
        lasting = {key for key in leaked_keys(client) if key.startswith(Keys().namespace())}
        of_beat = {Keys().schedule_entries()}  # beat goes on, and what it has published outlives it
        assert lasting - of_beat == {Keys().epoch(), Keys().namespace() + "seq"}
    stack.scale(WORKERS)
    work.wait_done()
