"""What a frozen pod had taken and not begun when it was given up: others do it, and the pod that wakes does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.local.servers import Server
from tests.trouble.conftest import KEEPS_ITS_DATA
from tests.trouble.fleet import TTL_S, Fleet

if TYPE_CHECKING:
    from app.local.guard import Guard

PREFETCHED = 3


def test_a_pod_that_wakes_begins_nothing_that_is_others_by_now(guard: Guard) -> None:
    """It holds four messages and runs one of them when it is frozen for longer than a TTL; the other pod is free."""
    fleet = Fleet(
        guard,
        Server(guard, options=KEEPS_ITS_DATA).start(),
        guard.folder("prefetched"),
        config={"worker_prefetch_multiplier": 1 + PREFETCHED},
    )
    try:
        fleet.start(["prefork", "prefork"])
        tasks = [fleet.send(1.5) for _ in range(1 + PREFETCHED)]
        fleet.wait(lambda: fleet.held() == len(tasks) and fleet.running(), "all to be taken")
        (running,) = fleet.running()
        (holder,) = {r["pod"] for r in fleet.records() if r["task"] == running}
        frozen = next(pod for pod in fleet.pods if pod.name == holder)
        frozen.process.pause()
        fleet.wait(lambda: set(tasks) - {running} <= set(fleet.done()), "the other pod to do it all", TTL_S * 3 + 15)
        frozen.process.resume()
        fleet.books.may_be_doubled = {running}
        fleet.is_well(30.0)
        fleet.balance()
        assert "is not begun" in frozen.process.read_log()
    finally:
        fleet.end()
        fleet.server.kill()
