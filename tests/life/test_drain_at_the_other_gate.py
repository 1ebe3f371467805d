"""A worker drains at the requeue gate as it does at the take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.local.toxics import Latency
from tests.life.test_stranded import REQUEUE, behind_a_proxy
from tests.worker import test_drain as drain
from tests.worker.conftest import on_every_pool

if TYPE_CHECKING:
    from tests.worker.conftest import Fleet


@on_every_pool
def test_by_command(fleet: Fleet, pool: str) -> None:
    drain.by_command(fleet, pool, **REQUEUE)


@on_every_pool
def test_at_the_deadline(fleet: Fleet, pool: str) -> None:
    drain.at_the_deadline(fleet, pool, **REQUEUE)


@on_every_pool
def test_left_over(fleet: Fleet, pool: str) -> None:
    drain.left_over(fleet, pool, **REQUEUE)


@on_every_pool
def test_what_waits_for_its_time_goes_back_at_once(fleet: Fleet, pool: str) -> None:
    """Celery's timer holds it at this gate; another pod is to have it."""
    drain.start(fleet, pool, **REQUEUE)
    task = fleet.send("work", countdown=3600)
    fleet.wait(lambda: fleet.client.hlen("unacked") == 1, "it to be fetched")
    drain.ask(drain.reach(fleet), {})
    drain.wait_for(fleet, "dry")
    fleet.wait(lambda: drain.queued(fleet) == [task], "it to be back")
    assert not fleet.client.keys("unacked*")


@on_every_pool
def test_what_is_on_its_way_goes_back_in_its_order(fleet: Fleet, pool: str) -> None:
    """Redis has handed a message out, and its answer is still on the line when the drain is asked for."""
    with behind_a_proxy(fleet, pool) as (pod, proxy):
        fetched = fleet.send("work", countdown=3600)
        fleet.wait(lambda: fleet.client.hlen("unacked") == 1, "it to be fetched")
        with proxy.toxic(Latency(0.5), "downstream"):
            coming = fleet.send("work")
            fleet.wait(lambda: not drain.queued(fleet), "the next one to be fetched")
            drain.ask(drain.reach(fleet), {})
            fleet.wait(lambda: len(drain.queued(fleet)) == 2, "both to be back")
        assert drain.queued(fleet) == [fetched, coming], pod.read_log()
