"""The pipe through which a pool's process answers its worker holds what is no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.local.servers import Server
from tests.trouble.conftest import KEEPS_ITS_DATA
from tests.trouble.fleet import Fleet

if TYPE_CHECKING:
    from app.local.guard import Guard


def test_a_garbled_answer_costs_its_process_alone(guard: Guard) -> None:
    """Celery ends the worker, or rather means to: it hangs while it waits for answers that nobody reads."""
    fleet = Fleet(guard, Server(guard, options=KEEPS_ITS_DATA).start(), guard.folder("garbled"))
    try:
        fleet.start(["prefork"], concurrency=2)
        pod = fleet.pods[0]
        fleet.wait_done([fleet.send(0.1) for _ in range(3)])
        garbled = fleet.send(task="garbling")
        fleet.books.may_be_doubled = {garbled}
        fleet.wait_done([garbled])
        fleet.wait(lambda: "cannot be read" in pod.process.read_log(), "the garbled answer to be noticed")
        fleet.wait_done([fleet.send(0.1) for _ in range(20)])
        assert pod.process.running
        fleet.is_well(20.0)
        fleet.balance()
    finally:
        fleet.end()
        fleet.server.kill()
