"""The master changes under a running fleet: workers, stand-ins, doorkeeper and producers go along by themselves."""

# pyright: basic

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from celery import Celery

from app.local.proxy import Proxy
from app.local.servers import Server
from tests.support.replicas import in_step, make_replica
from tests.support.sentinel import Watched, role
from tests.support.servers import kinds
from tests.support.waiting import wait_until
from tests.trouble.conftest import KEEPS_ITS_DATA
from tests.trouble.fleet import APP, TTL_S, Fleet, Load
from throttle.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.guard import Guard
    from app.local.servers import Kind


def test_the_server_is_a_replica_for_longer_than_a_ttl(fleet: Fleet) -> None:
    """READONLY to everything, then a master again with the same data: nobody ends, nothing is lost."""
    elsewhere = Server(fleet.guard, fleet.server.kind).start()
    with Load(fleet, per_s=20, seconds=0.1):
        fleet.wait(lambda: fleet.counts().busy > 0, "work under way")
        make_replica(fleet.server, elsewhere)
        elsewhere.process.pause()  # before it can hand over its emptiness
        try:
            fleet.wait(
                lambda: all("a replica now" in pod.process.read_log() for pod in fleet.pods), "READONLY", TTL_S + 5
            )
            fleet.wait(lambda: fleet.counts().alive == 0, "the TTL to pass", TTL_S + 2)
        finally:
            make_replica(fleet.server, None)
            elsewhere.kill()
        fleet.wait(lambda: fleet.counts().alive == len(fleet.pods), "all pods alive", TTL_S)
        assert fleet.each_consumes(10.0) < 5.0
    assert fleet.books.errors, "a producer is told"


@pytest.mark.parametrize("kind", kinds())
def test_a_service_that_moves_to_the_new_master(guard: Guard, kind: Kind) -> None:
    """Behind a name, without Sentinel: old connections stay with the old master, which is a replica now.

    They are answered READONLY for ever; the next connection leads to the new master. That goes for the pods, for what
    beats beside them, for the doorkeeper and for a producer that does not try twice.
    """
    old = Server(guard, kind, options=KEEPS_ITS_DATA).start()
    new = Server(guard, kind, options=KEEPS_ITS_DATA).start()
    make_replica(new, old)
    fleet = Fleet(guard, old, guard.folder("trouble"))
    service = Proxy(("127.0.0.1", old.port)).start()
    fleet.producer.close()
    fleet.producer = fleet.make_producer(f"redis://127.0.0.1:{service.port}/0")
    try:
        fleet.start()
        fleet.is_well(20.0)
        in_step(old, new)
        make_replica(new, None)
        for proxy in (service, *(pod.proxy for pod in fleet.pods)):
            proxy.point_to(("127.0.0.1", new.port))
        make_replica(old, new)
        fleet.look_at(new)
        fleet.try_to_send()  # on the old connection
        assert "a replica now" in str(fleet.books.errors)
        fleet.send(retry=False)
        fleet.wait(lambda: fleet.counts().alive == len(fleet.pods), "all pods alive", TTL_S + 2)
        assert fleet.each_consumes(10.0) < 5.0
        follows(fleet)
        fleet.is_well(20.0)
        fleet.balance()
    finally:
        fleet.end()
        service.close()


def follows(fleet: Fleet) -> None:
    """A doorkeeper watches the new master, and a stand-in beats there for a pod that cannot."""
    fleet.wait(lambda: fleet.client.exists(Keys().namespace() + "doorkeeper"), "a doorkeeper")
    foreign = Celery("foreign", broker=fleet.server.url, set_as_current=False)
    try:
        tasks = [foreign.send_task(f"{APP}.work", (0.0,), ignore_result=True).id for _ in range(5)]
    finally:
        foreign.close()
    fleet.wait_done(tasks)
    gone = len(fleet.journal("gone"))
    hog = fleet.send(TTL_S + 1.5, task="hog")  # holds Python's lock: on all pools but prefork nothing else runs there
    fleet.wait_done([hog])
    assert len(fleet.journal("gone")) == gone
    assert fleet.started(hog) == 1


@pytest.fixture(scope="module", params=kinds())
def watched(request: pytest.FixtureRequest, guard: Guard) -> Iterator[tuple[Watched, Fleet]]:
    """A fleet that reaches its master through Sentinels."""
    group = Watched(guard, request.param, options=KEEPS_ITS_DATA).start()
    fleet = Fleet(
        guard,
        group.master(),
        guard.folder("trouble"),
        url=group.url,
        config={"broker_transport_options": group.options},
    )
    try:
        fleet.start()
        yield group, fleet
    finally:
        fleet.end()
        group.end()


@pytest.mark.parametrize("how", ["killed", "frozen", "switched"])
def test_a_fail_over_with_sentinel(watched: tuple[Watched, Fleet], how: str) -> None:
    """What is lost are at most messages that the old master had not replicated."""
    group, fleet = watched
    old = group.master()
    fleet.look_at(old)
    fleet.is_well(30.0)
    fleet.open_books()
    tasks = [fleet.send(1.0) for _ in range(6)]
    wait_until(lambda: group.lag() == 0, 10.0, what="the replica to have everything")
    with Load(fleet, per_s=20, seconds=0.1):
        if how == "switched":
            new = group.switch()
        else:
            old.process.pause() if how == "frozen" else old.kill()
            new = group.wait_failed_over(old)
        fleet.look_at(new)
        fleet.wait(lambda: fleet.counts().alive == len(fleet.pods), "all pods alive", TTL_S + 5)
        assert fleet.each_consumes(15.0) < 8.0
    bring_back(group, old, how)
    follows(fleet)
    fleet.is_well(30.0)
    verdict = fleet.judged()
    assert verdict.violations == []
    assert not set(verdict.lost) & set(tasks), "what was replicated is done"
    print(f"{how}: {len(verdict.lost)} of {verdict.published} lost, {len(verdict.doubled)} done twice")  # noqa: T201


def bring_back(group: Watched, old: Server, how: str) -> None:
    """Let the old master come back, as a replica."""
    if how == "frozen":
        old.process.resume()
    elif how == "killed":
        old.start()
    wait_until(lambda: role(old) == "slave", 30.0, what="the old master to become a replica")
    wait_until(lambda: group.lag() >= 0, 30.0, what="a replica")
