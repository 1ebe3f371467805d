"""Fixtures of the feature tests: the fleets that stand for the whole run, and those of one scenario."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.features.fleet import Fleet, Setup, Stage
from tests.features.table import GATES, Stages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.guard import Guard

SETUPS = {
    "plain": Setup(),
    "wide": Setup(
        config={"worker_prefetch_multiplier": 4},
        install={"retry_lane": "normal"},
        prefix="features:",
        socket=True,
        protocol=2,
    ),
}
"""The standing fleets, at each gate: one as it comes, one with all that may be set otherwise about the way to Redis."""


@pytest.fixture(scope="session")
def stages(guard: Guard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    """Where scenarios are played."""
    folder, number = tmp_path_factory.mktemp("features"), itertools.count()
    standing = {
        (name, gate): Stage(guard, folder / f"{name}-{gate}", setup.at(gate))
        for name, setup in SETUPS.items()
        for gate in GATES
    }

    def own(pool: str, gate: str) -> Fleet:
        return Fleet(guard, folder / f"own-{next(number)}", pool, Setup().at(gate))

    yield Stages(standing, own)
    for stage in standing.values():
        stage.end()
