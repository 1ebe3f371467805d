"""Which application the workers of a test run, and how its producer sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Deployment:
    """One application on two pods, and one producer."""

    app: str
    """As ``celery -A`` takes it."""
    queue: str
    """Where its normal work comes from."""
    pool: str = "prefork"
    producer_rings: bool = True
    """The producer has the library too; otherwise it knows nothing but the broker's address."""
    settings: tuple[tuple[str, str], ...] = ()
    """Further environment variables of the workers, as pairs."""

    def __str__(self) -> str:
        """The name of its tests."""
        return f"{self.app}-{self.pool}-{'library' if self.producer_rings else 'bare'}"


FOREIGN = Deployment("tests.e2e.foreign", "celery")
OWN = Deployment("app.celery", "task_queue")


def deployed(*deployments: Deployment) -> pytest.MarkDecorator:
    """Run the test once for each deployment."""
    return pytest.mark.parametrize("deployment", deployments, indirect=True, ids=str)


def on_pools(*pools: str, settings: Mapping[str, str]) -> tuple[Deployment, ...]:
    """The foreign application on each of these pools."""
    return tuple(Deployment(FOREIGN.app, FOREIGN.queue, pool, settings=tuple(settings.items())) for pool in pools)
