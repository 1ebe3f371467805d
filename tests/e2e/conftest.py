"""pytest-celery's fixtures over processes: see ``containers``.

A test that asks for ``celery_setup`` gets a broker, a back end, two workers and a producer. Which
application the workers run, on which pool and with which settings is said by ``@deployed(...)``.
"""
# pyright: basic

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pytest_celery import (
    CeleryBackendCluster,
    CeleryBrokerCluster,
    CeleryTestSetup,
    CeleryWorkerCluster,
    RedisTestBackend,
    RedisTestBroker,
)

import throttle
from app.local.processes import Placement
from tests.e2e.containers import PodContainer, PodNode, ServerContainer
from tests.e2e.deployment import FOREIGN, Deployment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from celery import Celery

    from app.local.guard import Guard
    from tests.support.servers import Client


class Setup(CeleryTestSetup):
    """The setup of a service that has nothing but the broker's address."""

    deployment = FOREIGN

    @classmethod
    def update_app_config(cls, app: Celery) -> None:
        """Send normal work to the queue that the workers consume; with the library, ring a pod for it."""
        app.conf.task_default_queue = cls.deployment.queue
        if cls.deployment.producer_rings:
            throttle.install(app)


@pytest.fixture
def deployment(request: pytest.FixtureRequest) -> Deployment:
    """What the test's parameter says, or the foreign application."""
    return getattr(request, "param", FOREIGN)


@pytest.fixture
def celery_setup_cls(deployment: Deployment) -> type[CeleryTestSetup]:
    """The producer's side."""
    return type("DeployedSetup", (Setup,), {"deployment": deployment})


@pytest.fixture
def celery_broker_cluster(valkey: Client) -> Iterator[CeleryBrokerCluster]:
    """The run's Valkey, emptied."""
    cluster = CeleryBrokerCluster(RedisTestBroker(ServerContainer(valkey.server, 0)))  # type: ignore[arg-type]
    yield cluster
    cluster.teardown()


@pytest.fixture
def celery_backend_cluster(valkey: Client) -> Iterator[CeleryBackendCluster]:
    """Another database of the same server."""
    node = RedisTestBackend(ServerContainer(valkey.server, 1))  # type: ignore[arg-type]
    cluster = CeleryBackendCluster(node)
    yield cluster
    node.teardown()
    cluster.teardown()


@pytest.fixture
def celery_worker_cluster(
    guard: Guard,
    deployment: Deployment,
    celery_worker_cluster_config: dict[str, Any],
    celery_setup_app: Celery,
    tmp_path: Path,
) -> Iterator[CeleryWorkerCluster]:
    """Two pods of the deployment, started side by side."""
    settings = {
        "RESULT_BACKEND": celery_worker_cluster_config["celery_backend_cluster_config"]["urls"][0],
        "THROTTLE_TTL": "3",
        "PULSE_EVERY": "0",
        "TASK_QUEUE": deployment.queue,
        **dict(deployment.settings),
    }
    broker = celery_worker_cluster_config["celery_broker_cluster_config"]["urls"][0]
    placement = Placement(broker, tmp_path, settings, app=deployment.app)
    nodes = [
        PodNode(
            PodContainer(guard, placement, name, pool=deployment.pool, queue=deployment.queue),  # type: ignore[arg-type]
            celery_setup_app,
        )
        for name in ("pod-1", "pod-2")
    ]
    cluster = CeleryWorkerCluster(*nodes)
    try:
        cluster.ready()
        yield cluster
    finally:
        for node in nodes:
            node.teardown()
        celery_setup_app.close()
