"""How commands print: plain columns for people, JSON for programs, and no message that can command a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

GAP = "  "
FIRST_ROWS = 200
"""So many rows decide how wide the columns are; what comes later is not waited for."""


def when(at_ms: int) -> str:
    """A moment of the server's clock, in UTC, to the millisecond."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(text: str) -> str:
    """Text of unknown origin with every character that is not to be seen written out; lines stay lines."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def in_one_line(text: str) -> str:
    """The same, line ends included."""
    return plain(text).replace("\n", "\\n")


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table. The last column is as wide as it comes."""
    waiting: list[Sequence[str]] = [head]
    widths: list[int] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) > FIRST_ROWS:
            widths = widths or _widths(waiting)
            yield from (_line(cells, widths) for cells in waiting)
            waiting.clear()
    widths = widths or _widths(waiting)
    yield from (_line(cells, widths) for cells in waiting)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)), cells[-1]]).rstrip()


def print_json(value: Any) -> None:
    """One document on standard output."""
    click.echo(json.dumps(value))


def print_json_list(values: Iterable[Any]) -> None:
    """One array on standard output, an item to a line, written as the items come."""
    before = "["
    for value in values:
        click.echo(before + json.dumps(value), nl=False)
        before = ",\n "
    click.echo("[]" if before == "[" else "]")
