"""A worker that greets its neighbours at its start, as Celery's do by default, begins to take at once.

It hears their answers by a BRPOP on the connection that takes afterwards, and that may be still under way then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.worker.conftest import on_every_pool

if TYPE_CHECKING:
    from tests.worker.conftest import Fleet


@on_every_pool
def test_what_is_published_while_two_pods_greet_each_other_is_taken_at_once(fleet: Fleet, pool: str) -> None:
    pods = fleet.start("one", "two", pool=pool, ready=False, THROTTLE_RATIO="1")
    fleet.wait(lambda: fleet.counts().alive == 2, "both members")
    sent = [fleet.send("work", 1.0) for _ in range(2)]
    fleet.wait(lambda: all("mingle: searching" in pod.read_log() for pod in pods), "greetings")
    fleet.wait(lambda: len({entry["member"] for entry in fleet.journal("take")}) == 2, "a task in each pod")
    fleet.wait_done(*sent)
    last = fleet.start("last", pool=pool, ready=False, THROTTLE_RATIO="1")  # its neighbours answer
    fleet.wait(lambda: "mingle: sync with" in last[0].read_log(), "an answer")
    sent = [fleet.send("work", 2.5) for _ in range(3)]
    fleet.wait(lambda: len({entry["member"] for entry in fleet.journal("take")}) == 3, "a task in the last pod as well")
    fleet.wait_done(*sent)
