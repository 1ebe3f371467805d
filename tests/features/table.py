# pyright: basic
"""The table of features in docs/features.md: each row a test of this folder, each cell a pool that it is played on.

`@feature` makes a test of a scenario and notes its row. A pool on which Celery itself cannot do it is named with the
reason, and the reason with a look at Celery that proves it: where a later Celery can, the proof fails, and the row is
due for a change.

`python -m tests.features.table` writes the table anew; a test compares it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from celery.concurrency import get_implementation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.features.fleet import Fleet, Setup, Stage

POOLS = ("prefork", "threads", "gevent", "solo")
FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "features.md"
BEGIN, END = "<!-- features: begin (python -m tests.features.table) -->", "<!-- features: end -->"


class Cannot(NamedTuple):
    """Why a pool of Celery's has no such feature."""

    reason: str
    proof: Callable[[Any], bool]
    """Of the class of the pool: whether the reason (still) holds."""


@dataclass(frozen=True)
class Feature:
    """One row."""

    title: str
    group: str
    module: str
    test: str
    cannot: Mapping[str, Cannot] = field(default_factory=dict[str, Cannot])

    @property
    def pools(self) -> tuple[str, ...]:
        """Those that it is tested on."""
        return tuple(pool for pool in POOLS if pool not in self.cannot)


FEATURES: dict[tuple[str, str], Feature] = {}


def feature(
    group: str, title: str, *, on: str = "plain", cannot: Mapping[str, Cannot] | None = None
) -> Callable[[Callable[[Fleet, str], None]], Callable[..., None]]:
    """Make a test of a scenario: it is played on every pool that can, side by side.

    `on` names the fleet it is played on: "plain" or "wide", which stand for the whole run, or "own", a fleet without
    pods.
    """

    def make(scenario: Callable[[Fleet, str], None]) -> Callable[..., None]:
        module = scenario.__module__.rpartition(".")[2]
        row = Feature(title, group, module, scenario.__name__, cannot or {})
        FEATURES[module, scenario.__name__] = row

        def test(stages: Stages) -> None:
            stages.play(scenario, row.pools, on)

        test.__name__, test.__doc__, test.__module__ = scenario.__name__, scenario.__doc__, scenario.__module__
        return test

    return make


class Stages:
    """Where scenarios are played."""

    def __init__(self, standing: Mapping[str, Stage], own: Callable[[str, Setup | None], Fleet]) -> None:
        """Fleets that stand, by name, and a function that makes one without pods for a pool."""
        self._standing, self._own = standing, own

    def play(self, scenario: Callable[[Fleet, str], None], pools: tuple[str, ...], on: str) -> None:
        """Play it, and fail with every pool's failure."""
        with ThreadPoolExecutor(len(pools)) as threads:
            played = {pool: threads.submit(self._play, scenario, pool, on) for pool in pools}
        failed = {pool: error for pool, future in played.items() if (error := future.exception()) is not None}
        for pool, error in failed.items():
            error.add_note(f"on the pool {pool}")
        if failed:
            raise ExceptionGroup(", ".join(failed), [e for e in failed.values() if isinstance(e, Exception)])

    def _play(self, scenario: Callable[[Fleet, str], None], pool: str, on: str) -> None:
        fleet = self._standing[on].fleet(pool) if on in self._standing else self._own(pool, None)
        try:
            fleet.begin()
            scenario(fleet, pool)
            fleet.settle()
        finally:
            if on not in self._standing:
                fleet.end()


def collect() -> list[Feature]:
    """Every row, in the order of the modules and of the tests in them."""
    for path in sorted(FOLDER.glob("test_*.py")):
        importlib.import_module(f"tests.features.{path.stem}")
    return sorted(FEATURES.values(), key=lambda row: row.module)


def table() -> str:
    """The table in Markdown, with the reasons below it."""
    rows = collect()
    reasons = list(dict.fromkeys(cannot.reason for row in rows for cannot in row.cannot.values()))
    lines = [f"| feature | {' | '.join(POOLS)} | test |", f"|---|{':-:|' * len(POOLS)}---|"]
    for group in dict.fromkeys(row.group for row in rows):
        lines.append(f"| **{group}** |{' |' * (len(POOLS) + 1)}")
        for row in (row for row in rows if row.group == group):
            cells = [f"({reasons.index(row.cannot[p].reason) + 1})" if p in row.cannot else "✓" for p in POOLS]
            lines.append(f"| {row.title} | {' | '.join(cells)} | `{row.module}::{row.test}` |")
    return "\n".join([*lines, "", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))])


def pool_class(pool: str) -> Any:
    """Celery's class for a pool."""
    return get_implementation(pool)


def mentions(pool: Any, words: str) -> bool:
    """Whether the module of a pool's class has these words in it."""
    return words in inspect.getsource(sys.modules[pool.__module__])


def on_page(text: str) -> str:
    """What stands on the page between the marks."""
    return text.partition(BEGIN)[2].partition(END)[0].strip()


def write() -> None:
    """Put the table on the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    importlib.import_module("tests.features.table").write()
