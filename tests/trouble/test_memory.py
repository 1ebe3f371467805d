"""A full Redis: producers are told; what was accepted is worked off, also by pods that come back, and by new ones."""

# pyright: basic

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from kombu.exceptions import OperationalError

from app.local.servers import Server
from tests.trouble.fleet import TTL_S, Fleet

if TYPE_CHECKING:
    from collections.abc import Generator

    from app.local.guard import Guard


@contextmanager
def full(fleet: Fleet) -> Generator[None]:
    """Leave the server less memory than it has in use."""
    fleet.client.config_set("maxmemory", 1_000_000)
    try:
        with pytest.raises(OperationalError, match="'maxmemory'"):
            fleet.send(retry=False)
        yield
        with pytest.raises(OperationalError, match="'maxmemory'"):
            fleet.send(retry=False)
    finally:
        fleet.client.config_set("maxmemory", 0)


def test_what_was_accepted_is_done_while_nothing_more_is_accepted(fleet: Fleet) -> None:
    """Takes, ends and beats go on; a retry that cannot be published meanwhile comes again by itself."""
    tasks = [fleet.send(0.1) for _ in range(30)]
    tasks += [fleet.send(0.1, task="early") for _ in range(5)]
    retried = fleet.send(task="retried")
    with full(fleet):
        fleet.wait_done(tasks)
        fleet.wait(lambda: fleet.started(retried) > 1, "the retry to have been tried")
    fleet.wait_done([retried])


def test_pods_come_back_to_a_full_redis(fleet: Fleet) -> None:
    """Cut off while it is full, and cut off for a TTL: they connect, join and work off what fills it."""
    tasks = [fleet.send(0.3) for _ in range(40)]
    with full(fleet):
        for pod in fleet.pods:
            pod.proxy.cut()
        fleet.wait_done(tasks[:15])
        for pod in fleet.pods:
            pod.proxy.refuse()
        fleet.wait(lambda: fleet.counts().alive == 0, "the TTL to pass", TTL_S + 2)
        for pod in fleet.pods:
            pod.proxy.accept()
        fleet.wait_done(tasks, timeout_s=30.0)
        fleet.settles()


def test_a_new_pod_joins_a_fleet_on_a_full_redis(fleet: Fleet) -> None:
    """More pods are what a queue that fills Redis needs."""
    tasks = [fleet.send(0.5, queue="critical") for _ in range(140)]  # enough for the time that pods need to start
    with full(fleet):
        before = len(fleet.pods)
        fleet.start(["prefork", "gevent"])
        new = {pod.name for pod in fleet.pods[before:]}
        fleet.wait_done(tasks, timeout_s=60.0)
        assert new <= {r["pod"] for r in fleet.records()}
    for pod in fleet.pods[before:]:
        pod.process.terminate()
        assert pod.process.wait(15.0) == 0
        pod.proxy.close()
    del fleet.pods[before:]


@pytest.mark.parametrize(("policy", "limit", "warned"), [("allkeys-lru", "50mb", True), ("noeviction", "50mb", False)])
def test_a_server_that_would_evict_messages_is_warned_about_at_the_start(
    guard: Guard, policy: str, limit: str, *, warned: bool
) -> None:
    server = Server(guard, options={"maxmemory-policy": policy, "maxmemory": limit}).start()
    fleet = Fleet(guard, server, guard.folder("trouble"))
    try:
        fleet.start(["solo"])
        lines = [line for line in fleet.pods[0].process.read_log().splitlines() if "evicts keys" in line]
        assert len(lines) == warned
        assert not warned or f"(maxmemory-policy {policy}), messages among them" in lines[0]
    finally:
        fleet.end()
        server.kill()
