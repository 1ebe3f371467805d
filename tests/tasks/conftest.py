"""Fixtures of the tests of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tasks.stores import InEtcd, InRedis

if TYPE_CHECKING:
    from tests.support.etcd import Etcd
    from tests.support.servers import StartServer


@pytest.fixture(params=["valkey", "etcd"])
def own_place(request: pytest.FixtureRequest) -> InRedis | InEtcd:
    """A server of the test's own, to be killed and frozen."""
    if request.param == "etcd":
        etcd: Etcd = request.getfixturevalue("own_etcd")
        return InEtcd(etcd)
    start_server: StartServer = request.getfixturevalue("start_server")
    return InRedis(start_server("valkey", {"appendonly": "yes", "appendfsync": "always"}))
