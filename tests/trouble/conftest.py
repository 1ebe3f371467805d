"""Fixtures: one fleet of a pod on each pool for all tests of a file, well again after each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from app.local.servers import Server
from tests.support.servers import kinds
from tests.trouble.fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.guard import Guard

KEEPS_ITS_DATA = {"appendonly": "yes", "appendfsync": "always"}


@pytest.fixture(scope="module", params=kinds())
def standing(request: pytest.FixtureRequest, guard: Guard) -> Iterator[Fleet]:
    """A pod on each pool, for the whole file, on a server that keeps its data; once for each kind of server."""
    fleet = Fleet(guard, Server(guard, request.param, options=KEEPS_ITS_DATA).start(), guard.folder("trouble"))
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.end()
        fleet.server.kill()


@pytest.fixture
def fleet(standing: Fleet) -> Iterator[Fleet]:
    """The standing fleet, well before and after the test; what the test sent is judged."""
    standing.is_well(timeout_s=30.0)
    standing.open_books()
    yield standing
    standing.is_well(timeout_s=30.0)
    standing.balance()
