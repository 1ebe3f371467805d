"""The requeue gate in trouble: each pod fetches again by itself. What becomes of messages is kombu's affair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from app.local.servers import Server
from app.local.toxics import Timeout
from tests.trouble.conftest import KEEPS_ITS_DATA
from tests.trouble.fleet import TTL_S, Fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.local.guard import Guard


@pytest.fixture(scope="module")
def standing(guard: Guard) -> Iterator[Fleet]:
    """A pod on each pool, at the other gate."""
    server = Server(guard, options=KEEPS_ITS_DATA).start()
    fleet = Fleet(guard, server, guard.folder("trouble"), settings={"WORKLOAD_INSTALL": '{"gate": "requeue"}'})
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.end()
        server.kill()


def restart(fleet: Fleet) -> None:
    """Redis ends and starts again."""
    fleet.server.kill()
    fleet.server.start()


def cut(fleet: Fleet) -> None:
    """RST on all connections."""
    for pod in fleet.pods:
        pod.proxy.cut()


def silence(fleet: Fleet) -> None:
    """Half-open connections while tasks end: their acknowledgements do not get through."""
    tasks = {fleet.send(1.0, queue="critical") for _ in fleet.pods}
    fleet.wait(lambda: fleet.running() >= tasks, "a task in each pod")
    for pod in fleet.pods:
        pod.proxy.add(Timeout())
    fleet.wait(lambda: fleet.counts().alive == 0, "the TTL to pass", TTL_S + 2)
    for pod in fleet.pods:
        pod.proxy.clear()


def demotion(fleet: Fleet) -> None:
    """Redis is a replica for longer than a TTL."""
    with fleet.client.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        fleet.wait(lambda: fleet.counts().alive == 0, "the TTL to pass", TTL_S + 2)
        client.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize("trouble", [restart, cut, silence, demotion])
def test_each_pod_fetches_again_by_itself(standing: Fleet, trouble: Callable[[Fleet], None]) -> None:
    standing.each_consumes(20.0)
    trouble(standing)
    standing.wait(lambda: standing.counts().alive == len(standing.pods), "all pods alive", TTL_S)
    assert standing.each_consumes(15.0) < 10.0
    standing.wait(lambda: standing.counts().busy == 0, "permits to be given back")
    standing.wait(lambda: standing.client.hlen("unacked") == 0, "acknowledgements to be repeated")
