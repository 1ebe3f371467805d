"""What every benchmark prints: progress while it runs, a table, the targets, one JSON line."""

from __future__ import annotations

import json
import operator
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]
    Relation = Literal["at most", "at least", "exactly"]


MEETS = {"at most": operator.le, "at least": operator.ge, "exactly": operator.eq}


class Report:
    """Collects the rows of one benchmark and the targets that were missed."""

    def __init__(self, title: str, *, quiet: bool) -> None:
        """``quiet`` sends everything but the JSON line to standard error."""
        self.title = title
        self.rows: list[Row] = []
        self.missed: list[str] = []
        self._console = Console(stderr=quiet, width=None if (sys.stderr if quiet else sys.stdout).isatty() else 120)
        self._began_s = time.monotonic()

    def progress(self, message: str) -> None:
        """Say what is going on, with the seconds since the start."""
        self._console.print(f"[{time.monotonic() - self._began_s:6.1f} s] {message}", markup=False, highlight=False)

    def add(self, row: Row) -> None:
        """Add one row of results; a value that does not apply is None.

        Its ``missed`` and ``slow`` name the targets that it missed; see :meth:`expect`.
        """
        row["missed"], row["slow"] = [], []
        self.rows.append(row)

    def expect(self, row: Row, name: str, relation: Relation, limit: float, *, binding: bool = True) -> None:
        """Hold a figure of a row against its target.

        Args:
            row: with the figure.
            name: of the figure. One that could not be measured (None) has missed its target.
            relation: ``at most``, ``at least`` or ``exactly``.
            limit: the target.
            binding: whether missing it fails the benchmark. A count, an order or a ratio says the
                same on every machine; a time says as much about the machine, and only warns.
        """
        value = row[name]
        if value is not None and MEETS[relation](value, limit):
            return
        fault = f"{name} is {shown(value)}, target {relation} {limit:g}"
        row["missed" if binding else "slow"].append(fault)
        if binding:
            self.missed.append(fault)

    def finish(self, figures: Sequence[str], heads: Sequence[str] = ()) -> int:
        """Print the table of these figures, the targets that were missed, and the JSON line.

        Args:
            figures: what is printed of each row; the JSON line has everything.
            heads: with these, each row becomes a column under their values, which suits few rows of
                many figures; without, each figure is a column.

        Returns:
            The exit code: 1 when a binding target was missed.
        """
        table = Table(title=self.title, title_justify="left")
        if heads:
            table.add_column("")
            for row in self.rows:
                table.add_column("\n".join(shown(row[head]) for head in heads), justify="right")
            for name in figures:
                table.add_row(name.replace("_", " "), *(shown(row.get(name)) for row in self.rows))
        else:
            for name in figures:
                table.add_column(name.replace("_", " "), justify="right")
            for row in self.rows:
                table.add_row(*(shown(row.get(name)) for name in figures))
        self._console.print(table)
        for row in self.rows:
            label = " ".join(str(row[part]) for part in ("system", "pool", "concurrency", "prefetch") if part in row)
            for kind in ("slow", "missed"):
                for fault in row[kind]:
                    self._console.print(f"{kind}: {label}: {fault}", markup=False, highlight=False)
        if not self.missed:
            self._console.print("every target that binds was met", highlight=False)
        sys.stdout.flush()
        sys.stdout.write(json.dumps({"results": self.rows}) + "\n")
        return 1 if self.missed else 0


def shown(value: object) -> str:
    """A figure as a person reads it; a dash where it does not apply."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value below which ``share`` of the values lie (the nearest one measured); None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: Sequence[float]) -> float | None:
    """The median; None of none."""
    return statistics.median(values) if values else None


def rounded(value: float | None, digits: int = 2) -> float | None:
    """A figure without the digits that mean nothing."""
    return None if value is None else round(value, digits)
