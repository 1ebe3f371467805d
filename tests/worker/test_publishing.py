"""Publishing on a channel that kombu has closed, as it does over a refusal of a full Redis."""

# pyright: basic

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from celery import Celery

import throttle
from throttle.errors import QueueUnusable

if TYPE_CHECKING:
    from tests.support.servers import Client
    from tests.worker.conftest import Fleet


def test_a_channel_that_was_closed_is_made_anew(valkey: Client) -> None:
    """By itself kombu ends in an AttributeError, which tells a producer nothing and is not tried again."""
    app = throttle.install(Celery("producer", broker=valkey.url, set_as_current=False))
    with app.connection_for_write() as connection, connection.Producer() as producer:  # the pool's has a past here
        producer.channel.close()
        producer.publish({}, routing_key="celery", retry=True)
    app.close()
    assert valkey.llen("celery") == 1


def test_a_queue_whose_key_is_no_list_is_refused_in_one_line(valkey: Client) -> None:
    """By itself kombu tries three times and ends in an error that names a script."""
    app = throttle.install(Celery("producer", broker=valkey.url, set_as_current=False))
    valkey.set("celery", "somebody wrote this")
    with pytest.raises(QueueUnusable) as refused:
        app.send_task("work")
    app.close()
    said = "queue 'celery': nothing was published, the key 'celery' in Redis is no list; "
    assert str(refused.value) == said + "look with TYPE, then RENAME or DEL it"
    assert valkey.info("commandstats")["cmdstat_lpush"]["failed_calls"] >= 1
    with app.connection_for_read() as connection:
        assert connection.default_channel._size("celery") == 0


def test_a_queue_whose_key_is_no_list_stops_no_other(fleet: Fleet) -> None:
    """Its worker takes from the others, acknowledges, names the key once, and takes from it when it is mended."""
    fleet.start("one", arguments=["--queues", "celery,other"])
    (pod,) = fleet.workers.pods
    fleet.client.set("celery", "somebody wrote this")
    tasks = [fleet.send("work", queue="other") for _ in range(20)]
    fleet.wait_done(*tasks)
    assert pod.read_log().count("nothing is taken from queue celery: the key 'celery' in Redis is no list") == 1
    assert "Connection to broker lost" not in pod.read_log()
    fleet.client.delete("celery")
    fleet.wait_done(fleet.send("work"))


def test_a_server_that_forgets_its_scripts_and_then_refuses_them(fleet: Fleet) -> None:
    """A script that cannot be loaded costs the connection and no more: the next one takes."""
    fleet.start("one")
    (pod,) = fleet.workers.pods
    fleet.client.execute_command("ACL", "SETUSER", "default", "-script|load")
    try:
        fleet.client.script_flush()
        fleet.wait(lambda: "script|load" in pod.read_log(), "the refusal")
    finally:
        fleet.client.execute_command("ACL", "SETUSER", "default", "+@all")
    fleet.wait_done(fleet.send("work"))
    assert pod.running
