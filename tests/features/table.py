# pyright: basic
"""The tables of features in docs/features.md: each row a test of this folder, each cell a pool that it is played on.

`@feature` makes a test of a scenario and notes its row. A pool on which Celery itself cannot do it is named with the
reason, and the reason with a look at Celery that proves it: where a later Celery can, the proof fails, and the row is
due for a change. There is a table for each gate; what the gate before the pool does not promise is named as well.

`python -m tests.features.table` writes the tables anew; a test compares them.
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

from tests.support.pages import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.features.fleet import Fleet, Stage

POOLS = ("prefork", "threads", "gevent", "solo")
GATES = ("take", "requeue")
FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "features.md"
BEGIN, END = "<!-- features at {}: begin (python -m tests.features.table) -->", "<!-- features at {}: end -->"


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
    otherwise: str = ""
    """What the gate before the pool does instead; the feature is not played there then."""

    def pools(self, gate: str) -> tuple[str, ...]:
        """Those that it is tested on, at a gate."""
        if gate == "requeue" and self.otherwise:
            return ()
        return tuple(pool for pool in POOLS if pool not in self.cannot)

    def reason(self, gate: str, pool: str) -> str:
        """Why it is not tested there; '' where it is."""
        if gate == "requeue" and self.otherwise:
            return self.otherwise
        return self.cannot[pool].reason if pool in self.cannot else ""


FEATURES: dict[tuple[str, str], Feature] = {}


def feature(
    group: str, title: str, *, on: str = "plain", cannot: Mapping[str, Cannot] | None = None, otherwise: str = ""
) -> Callable[[Callable[[Fleet, str], None]], Callable[..., None]]:
    """Make a test of a scenario: it is played at both gates on every pool that can, side by side.

    `on` names the fleet it is played on: "plain" or "wide", which stand for the whole run, or "own", a fleet without
    pods. `otherwise` is what the gate before the pool does instead, where it has no such feature.
    """

    def make(scenario: Callable[[Fleet, str], None]) -> Callable[..., None]:
        module = scenario.__module__.rpartition(".")[2]
        row = Feature(title, group, module, scenario.__name__, cannot or {}, otherwise)
        FEATURES[module, scenario.__name__] = row

        def test(stages: Stages) -> None:
            stages.play(scenario, [(gate, pool) for gate in GATES for pool in row.pools(gate)], on)

        test.__name__, test.__doc__, test.__module__ = scenario.__name__, scenario.__doc__, scenario.__module__
        return test

    return make


class Stages:
    """Where scenarios are played."""

    def __init__(self, standing: Mapping[tuple[str, str], Stage], own: Callable[[str, str], Fleet]) -> None:
        """Fleets that stand, by name and gate, and a function that makes one without pods for a pool and a gate."""
        self._standing, self._own = standing, own

    def play(self, scenario: Callable[[Fleet, str], None], places: Sequence[tuple[str, str]], on: str) -> None:
        """Play it at these gates and on these pools, and fail with every failure."""
        with ThreadPoolExecutor(len(places)) as threads:
            played = {place: threads.submit(self._play, scenario, place, on) for place in places}
        failed = {place: error for place, future in played.items() if (error := future.exception()) is not None}
        for (gate, pool), error in failed.items():
            error.add_note(f"at the gate {gate}, on the pool {pool}")
        if failed:
            names = ", ".join(f"{pool} ({gate})" for gate, pool in failed)
            raise ExceptionGroup(names, [e for e in failed.values() if isinstance(e, Exception)])

    def _play(self, scenario: Callable[[Fleet, str], None], place: tuple[str, str], on: str) -> None:
        gate, pool = place
        stands = on != "own"
        fleet = self._standing[on, gate].fleet(pool) if stands else self._own(pool, gate)
        try:
            fleet.begin()
            scenario(fleet, pool)
            fleet.settle()
        finally:
            if not stands:
                fleet.end()


def collect() -> list[Feature]:
    """Every row, in the order of the modules and of the tests in them."""
    for path in sorted(FOLDER.glob("test_*.py")):
        importlib.import_module(f"tests.features.{path.stem}")
    return sorted(FEATURES.values(), key=lambda row: row.module)


def table(gate: str) -> str:
    """The table of a gate in Markdown, with the reasons below it."""
    rows = collect()
    reasons = list(dict.fromkeys(reason for row in rows for pool in POOLS if (reason := row.reason(gate, pool))))
    lines = [f"| feature | {' | '.join(POOLS)} | test |", f"|---|{':-:|' * len(POOLS)}---|"]
    for group in dict.fromkeys(row.group for row in rows):
        lines.append(f"| **{group}** |{' |' * (len(POOLS) + 1)}")
        for row in (row for row in rows if row.group == group):
            found = [row.reason(gate, pool) for pool in POOLS]
            cells = [f"({reasons.index(reason) + 1})" if reason else "✓" for reason in found]
            lines.append(f"| {row.title} | {' | '.join(cells)} | `{row.module}::{row.test}` |")
    return "\n".join([*lines, "", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))])


def pool_class(pool: str) -> Any:
    """Celery's class for a pool."""
    return get_implementation(pool)


def mentions(pool: Any, words: str) -> bool:
    """Whether the module of a pool's class has these words in it."""
    return words in inspect.getsource(sys.modules[pool.__module__])


def on_page(gate: str) -> Part:
    """Where the table of a gate stands."""
    return Part(PAGE, BEGIN.format(gate), END.format(gate))


def write() -> None:
    """Put the tables on the page."""
    for gate in GATES:
        on_page(gate).write(table(gate))


if __name__ == "__main__":
    importlib.import_module("tests.features.table").write()
