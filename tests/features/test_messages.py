# pyright: basic
"""What a message can be made of, how it can be sent, and by which way it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kombu.entity import Exchange

from tests.features.table import feature

if TYPE_CHECKING:
    from tests.features.fleet import Fleet

BODIES = "Bodies"
QUEUES = "Queues"
REDIS = "The way to Redis"


@feature(BODIES, "msgpack")
def test_msgpack(fleet: Fleet, pool: str) -> None:
    assert fleet.result(fleet.send("add", 2, 3, serializer="msgpack")) == 5


@feature(BODIES, "protobuf, by a registered serializer")
def test_protobuf(fleet: Fleet, pool: str) -> None:
    assert fleet.result(fleet.send("add", 2, 4, serializer="protobuf")) == 6


@feature(BODIES, "compressed (zlib)")
def test_compressed(fleet: Fleet, pool: str) -> None:
    assert fleet.result(fleet.send("add", *range(200), compression="zlib")) == 19900


@feature(QUEUES, "priorities: 0 first, 9 last, in order within each")
def test_priorities(fleet: Fleet, pool: str) -> None:
    count = 1 if pool == "solo" else 4
    blocking = [fleet.send("wait_for", "priorities:go") for _ in range(count)]
    fleet.wait(lambda: len(fleet.runs("start", *blocking)) == count, "a full pod")
    sent = {(priority, n): fleet.send("add", n, priority=priority) for priority in (9, 3, 6, 0) for n in range(3)}
    fleet.open("priorities:go")
    fleet.wait_done(*sent.values())
    takes = {run["task"]: run["take"] for run in fleet.runs("start", *sent.values())}
    taken = [priority for priority, _ in sorted(sent, key=lambda key: takes[sent[key]])]
    assert taken == [0] * 3 + [3] * 3 + [6] * 3 + [9] * 3
    if pool == "solo":
        assert [run["task"] for run in fleet.runs("start", *sent.values())] == [sent[key] for key in sorted(sent)]


@feature(QUEUES, "`x-expires`")
def test_queue_that_expires(fleet: Fleet, pool: str) -> None:
    tasks = [fleet.send("add", n, queue="passing") for n in range(3)]
    fleet.wait_done(*tasks)
    assert [run["queue"] for run in fleet.runs("start", *tasks)] == ["passing"] * 3
    assert len(fleet.journal("take")) == 3


@feature(QUEUES, "batches (`Producer.batch`)")
def test_batch(fleet: Fleet, pool: str) -> None:
    with fleet.app.connection_for_write() as connection:
        producer: Any = fleet.app.amqp.Producer(connection.default_channel)
        with producer.batch():
            tasks = [fleet.send("add", n, producer=producer) for n in range(20)]
            assert fleet.queued() == 0
    fleet.wait_done(*tasks)
    assert len(fleet.journal("take")) == 20


@feature(QUEUES, "broadcast: to every pod, without a take and without a slot", on="own")
def test_broadcast(fleet: Fleet, pool: str) -> None:
    fleet.start("one", "two")
    if fleet.gate == "take":
        fleet.wait(lambda: fleet.operations.counts().waiters == 2, "both at rest")
    assert "ok" in fleet.control("ping")  # ... and a turn later: they have subscribed
    exchange = Exchange("everyone", type="fanout")  # plain Celery's producer does not declare it either
    task = fleet.send("add", 1, queue="everyone", declare=[exchange])
    fleet.wait(lambda: len(fleet.runs("end", task)) == 2, "both")
    assert {run["pod"] for run in fleet.runs("start", task)} == {"one", "two"}
    assert fleet.journal("take") == []
    assert all(run["take"] is None for run in fleet.runs("start", task))


def connections(fleet: Fleet, flag: str) -> set[str]:
    """Protocols of the connections of pods that have a flag: U comes by the socket, b waits for its bell, N neither."""
    clients: Any = fleet.client.client_list()
    return {client["resp"] for client in clients if flag in client["flags"] and client["cmd"] != "client|list"}


@feature(REDIS, "TCP, RESP3")
def test_resp3(fleet: Fleet, pool: str) -> None:
    fleet.wait(lambda: connections(fleet, "b") == {"3"}, "a pod that waits for its bell, by RESP3")
    assert fleet.result(fleet.send("add", 1, 1)) == 2


@feature(REDIS, "Unix socket, RESP2", on="wide")
def test_socket(fleet: Fleet, pool: str) -> None:
    fleet.wait(lambda: "2" in connections(fleet, "U") and connections(fleet, "b") == {"2"}, "a pod by the socket")
    assert fleet.result(fleet.send("add", 1, 1)) == 2
    assert len(fleet.journal("take")) == 1


@feature(REDIS, "`global_keyprefix`", on="wide")
def test_prefix(fleet: Fleet, pool: str) -> None:
    assert fleet.result(fleet.send("add", 1, 1)) == 2
    keys: Any = fleet.client.keys("*")
    names = [key.decode() for key in keys]
    ours = [name for name in names if "headroom" in name or "_kombu" in name]
    assert [name for name in ours if not name.startswith("features:")] == []
    assert [entry["key"] for entry in fleet.journal("take")] == ["features:celery" if fleet.gate == "take" else ""]
