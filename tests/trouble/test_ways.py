"""Each way to Redis: TLS with and without a client's certificate, password, database, socket, prefix, all together.

The fleet has more connections than its workers' own: those of the doorkeeper, of the stand-in beside a pod, of a task
that asks, of remote control. All of them must go the same way.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest
import redis

from app.local.servers import Server, free_port
from tests.support.servers import kinds
from tests.support.tls import make_certificates
from tests.trouble.fleet import TTL_S, Fleet
from throttle.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from app.local.guard import Guard
    from app.local.servers import Kind

PASSWORD = "se/cr:et@"  # noqa: S105 - of a server that lives for a test
QUOTED = "se%2Fcr%3Aet%40"


@dataclass
class Way:
    """How a server listens, and how its fleet gets there."""

    options: dict[str, str] = field(default_factory=dict[str, str])
    url: str = "redis://127.0.0.1:{port}/0"
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    prefix: str = ""
    database: int = 0
    password: str = ""


def tls(folder: Path, *, ask_clients: bool) -> Way:
    made, port = make_certificates(folder), free_port()
    use = {"ssl_cert_reqs": int(ssl.CERT_REQUIRED), "ssl_ca_certs": made.authority}
    if ask_clients:
        use |= {"ssl_certfile": made.certificate("client"), "ssl_keyfile": made.key("client")}
    options = made.server_options(port, ask_clients=ask_clients)
    return Way(options, f"rediss://127.0.0.1:{port}/0", {"broker_use_ssl": use})


def by_tls(folder: Path) -> Way:
    return tls(folder, ask_clients=False)


def by_tls_with_a_clients_certificate(folder: Path) -> Way:
    return tls(folder, ask_clients=True)


def by_password_to_another_database(_: Path) -> Way:
    return Way(url=f"redis://:{QUOTED}@127.0.0.1:{{port}}/3", database=3, password=PASSWORD)


def by_socket_to_another_database(folder: Path) -> Way:
    path = folder / "r.sock"
    return Way({"unixsocket": str(path)}, f"redis+socket://{path}?virtual_host=3", database=3)


def with_a_prefix(_: Path) -> Way:
    return Way(config={"broker_transport_options": {"global_keyprefix": "here:"}}, prefix="here:")


TLS = (by_tls, by_tls_with_a_clients_certificate)
"""The Valkey that comes as a Python package is built without it."""
OTHERS = (by_password_to_another_database, by_socket_to_another_database, with_a_prefix)
WAYS = [(kind, way) for kind in kinds() for way in (*OTHERS, *(TLS if kind == "redis" else ()))]


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_all_connections_go_the_same_way(guard: Guard, kind: Kind, way: Callable[[Path], Way]) -> None:
    made = way(guard.folder("way"))
    server = Server(guard, kind, options=made.options).start()
    with server.client() as client:
        client.config_set("requirepass", made.password)
    eye = redis.Redis(port=server.port, db=made.database, password=made.password or None)
    fleet = Fleet(
        guard, server, guard.folder("trouble"), url=made.url.format(port=server.port), config=made.config, eye=eye,
        prefix=made.prefix,
    )  # fmt: skip
    try:
        fleet.start(["prefork", "threads"])
        fleet.is_well(20.0)
        keys = Keys(prefix=made.prefix)
        fleet.wait(lambda: eye.exists(keys.namespace() + "doorkeeper"), "a doorkeeper")
        hog = fleet.send(TTL_S + 1.0, task="hog")
        fleet.wait_done([hog, fleet.send(0.1)])
        assert fleet.journal("gone") == [], "the stand-in beats by the same way"
        pongs = fleet.producer.control.inspect(timeout=2.0).ping()
        assert len(pongs) == 2
        with server.client() as elsewhere:
            elsewhere.connection_pool.connection_kwargs |= {
                "password": eye.connection_pool.connection_kwargs.get("password")
            }
            assert made.database == 0 or elsewhere.dbsize() == 0, "nothing in another database"
        stored = cast("Iterator[bytes]", eye.scan_iter())
        assert [key for key in stored if not key.startswith(made.prefix.encode())] == []
        fleet.balance()
    finally:
        fleet.end()
        server.kill()


@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind == "redis"])
def test_a_server_that_nobody_vouches_for_is_refused(guard: Guard, tmp_path: Path, kind: Kind) -> None:
    way = tls(tmp_path, ask_clients=False)
    stranger = make_certificates(guard.folder("stranger"))
    config = {"broker_use_ssl": {**way.config["broker_use_ssl"], "ssl_ca_certs": stranger.authority}}
    server = Server(guard, kind, options=way.options).start()
    fleet = Fleet(guard, server, guard.folder("trouble"), url=way.url, config=config)
    try:
        fleet.start(["solo"], ready=False, THROTTLE_STARTUP_S="1")
        (pod,) = fleet.pods
        assert pod.process.wait(30.0) == 1
        last = pod.process.read_log().strip().splitlines()[-1]
        assert last.startswith("headroom: no Redis at rediss://")
        assert "certificate verify failed" in last
    finally:
        fleet.end()
        server.kill()
