"""Remote control outlives the loss of its own connection, on each pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.worker.conftest import on_every_pool
from tests.worker.test_drain import start

if TYPE_CHECKING:
    from tests.worker.conftest import Fleet


def subscribers(fleet: Fleet) -> set[str]:
    """Connections that listen for broadcasts."""
    listed: list[dict[str, Any]] = fleet.client.client_list(_type="pubsub")
    return {each["id"] for each in listed}


def answers(fleet: Fleet) -> bool:
    """Whether the pod answers to remote control."""
    return bool(fleet.producer.control.inspect(timeout=1.0).ping())


@on_every_pool
def test_each_connection_that_listens_may_be_closed(fleet: Fleet, pool: str) -> None:
    pod = start(fleet, pool)
    fleet.wait(lambda: answers(fleet), "an answer")
    for connection in sorted(subscribers(fleet), key=int):
        if not fleet.client.client_kill_filter(_id=connection):
            continue  # it went with another
        fleet.wait(lambda closed=connection: closed not in subscribers(fleet), "it to be closed")
        fleet.wait(lambda: answers(fleet), f"an answer after {connection} was closed")
    assert pod.running, pod.read_log()
    assert "Traceback" not in pod.read_log()
