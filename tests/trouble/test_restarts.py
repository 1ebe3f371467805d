"""Redis ends, starts again, is not ready yet, forgets its scripts or all its data: each pod works on by itself."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import redis

from tests.support.waiting import wait_until
from tests.trouble.fleet import TTL_S, Load

if TYPE_CHECKING:
    from tests.trouble.fleet import Fleet

BACK_S = 5.0
"""A pod works again so long after Redis does, at the latest."""


def under_load(fleet: Fleet) -> None:
    """Wait until work is under way in at least two pods."""
    fleet.wait(lambda: fleet.counts().busy >= 2, "work under way")


def comes_back(fleet: Fleet) -> None:
    """All pods are counted within a TTL and consume within five seconds."""
    fleet.wait(lambda: fleet.counts().alive == len(fleet.pods), "all pods alive", TTL_S)
    assert fleet.each_consumes(BACK_S) < BACK_S


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_restart_with_its_data(fleet: Fleet, end: str) -> None:
    with Load(fleet, per_s=20, seconds=0.2):
        under_load(fleet)
        getattr(fleet.server, end)()
        fleet.server.start()
        comes_back(fleet)


def test_loading(fleet: Fleet) -> None:
    """The server is there and answers LOADING for longer than a TTL."""
    with fleet.client.pipeline(transaction=False) as pipe:
        for number in range(2500):
            pipe.set(f"ballast:{number}", "x" * 500, ex=3600)
        pipe.execute()
    fleet.client.bgrewriteaof()
    wait_until(lambda: not fleet.client.info("persistence")["aof_rewrite_in_progress"])
    slow = {"key-load-delay": "2000", "loading-process-events-interval-bytes": "1024"}
    try:
        with Load(fleet, per_s=20, seconds=0.2):
            under_load(fleet)
            fleet.server.kill()
            fleet.server.options.update(slow)
            fleet.server.start()
            refused = 0

            def loaded() -> bool:
                nonlocal refused
                try:
                    return bool(fleet.client.ping())
                except (redis.BusyLoadingError, redis.TimeoutError):
                    refused += 1
                    return False

            wait_until(loaded, 30.0, every_s=0.1)
            assert refused > 0
            comes_back(fleet)
    finally:
        for name in slow:
            del fleet.server.options[name]
        with fleet.client.pipeline(transaction=False) as pipe:
            for number in range(2500):
                pipe.delete(f"ballast:{number}")
            pipe.execute()


def test_script_flush_under_load(fleet: Fleet) -> None:
    with Load(fleet, per_s=50, seconds=0.05):
        for _ in range(5):
            done = len(fleet.done())
            fleet.client.script_flush()
            fleet.wait(lambda done=done: len(fleet.done()) >= done + 10, "work to go on")


def forget_by_flushall(fleet: Fleet) -> None:
    """Remove everything from the server while it runs."""
    fleet.client.flushall()


def forget_by_restart(fleet: Fleet) -> None:
    """End the server and start it again without its files."""
    fleet.server.kill()
    shutil.rmtree(fleet.server.folder / "appendonlydir")
    fleet.server.start()


@pytest.mark.parametrize("forget", [forget_by_flushall, forget_by_restart])
def test_a_loss_of_all_data(fleet: Fleet, forget: object) -> None:
    """What runs is held again and done once; what waited in a queue is lost, as is said in docs/limits.md."""
    assert callable(forget)
    tasks = [fleet.send(2.0) for _ in range(8)]
    fleet.wait(lambda: len(fleet.running()) == 3, "three of them to run")
    running = fleet.running()
    forget(fleet)
    fleet.books.may_be_lost = set(tasks) - running
    comes_back(fleet)
    fleet.wait(lambda: {e["op"] for e in fleet.journal("hold")} == {"hold"}, "what runs to be held again")
    fleet.wait_done(running)
    assert all(fleet.started(task) == 1 for task in running)
