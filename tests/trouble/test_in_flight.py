"""What is between a worker and its child when the connection is lost, and what is owed when a pod ends: done once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.local.servers import Server
from tests.trouble.conftest import KEEPS_ITS_DATA
from tests.trouble.fleet import Fleet

if TYPE_CHECKING:
    from app.local.guard import Guard

CUTS = 40


def test_a_task_that_its_child_had_begun_is_not_given_back(guard: Guard) -> None:
    """Cut at the start of a task: the child runs it, and the worker has not heard so."""
    fleet = Fleet(guard, Server(guard, options=KEEPS_ITS_DATA).start(), guard.folder("in-flight"))
    try:
        fleet.start(["prefork"])
        pod = fleet.pods[0]
        for number in range(CUTS):
            task = fleet.send(0.01)
            fleet.wait(lambda number=number: fleet.journal("take")[number:], "it to be taken")
            pod.proxy.cut()
            fleet.wait_done([task])
        fleet.is_well(20.0)
        fleet.balance()
    finally:
        fleet.end()
        fleet.server.kill()


def test_a_pod_that_ends_while_redis_is_away_acknowledges_what_it_did(guard: Guard) -> None:
    """Redis dies while the task runs, the pod is asked to end, Redis is back: the end is told before the leave."""
    server = Server(guard, options=KEEPS_ITS_DATA).start()
    fleet = Fleet(guard, server, guard.folder("owed"))
    try:
        fleet.start(["prefork", "threads"])
        tasks = [fleet.send(1.0, queue="critical") for _ in range(2)]
        fleet.wait(lambda: fleet.running() == set(tasks), "a task in each pod")
        server.kill()
        fleet.wait(lambda: set(fleet.done()) == set(tasks), "both to be done")
        for pod in fleet.pods:
            pod.process.ask_to_end()
        server.start()
        fleet.look_at(server)
        for pod in fleet.pods:
            fleet.wait(lambda pod=pod: not pod.process.running, f"{pod.name} to end", 30.0)
        assert fleet.waiting() == 0, "nothing goes back"
        assert fleet.held() == 0
    finally:
        fleet.end()
        server.kill()
