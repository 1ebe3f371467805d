"""The tables on docs/fault-reports.md: public fault reports that a test replays, from reports.toml.

`python -m tests.faults.table` writes them anew; a test compares them.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.pages import Part

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent
REPORTS = FOLDER / "reports.toml"
ON_PAGE = Part(
    TESTS.parent / "docs" / "fault-reports.md",
    "<!-- reports: begin (python -m tests.faults.table) -->",
    "<!-- reports: end -->",
)
SHORT = {"celery": "celery/celery", "kombu": "celery/kombu"}


@dataclass(frozen=True)
class Report:
    """One row: the same fault may have been reported more than once."""

    reports: list[str]
    fault: str
    before: str
    headroom: str
    test: str

    @property
    def plays_both(self) -> bool:
        """Whether its test plays plain Celery as well."""
        return self.test.startswith("trouble/test_replays.py::")


@dataclass(frozen=True)
class Group:
    """One table."""

    title: str
    before: str
    rows: tuple[Report, ...]


def read(path: Path = REPORTS) -> list[Group]:
    """All tables. TypeError where a row has a part too many or too few."""
    groups: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["group"]
    return [Group(group["title"], group["before"], tuple(Report(**row) for row in group["report"])) for group in groups]


def link(report: str) -> str:
    """A report by its short name, as a link."""
    project, _, number = report.partition("#")
    return f"[{report}](https://github.com/{SHORT.get(project, project)}/issues/{number})"


def tables() -> str:
    """All tables in Markdown."""
    lines: list[str] = []
    for group in read():
        lines += [
            f"## {group.title}",
            "",
            f"| report | fault | {group.before} | Headroom | test |",
            "|---|---|---|---|---|",
        ]
        for row in group.rows:
            test = f"`{row.test}`" + (" ⇄" if row.plays_both else "")
            cells = (", ".join(map(link, row.reports)), row.fault, row.before, row.headroom, test)
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines).strip()


if __name__ == "__main__":
    ON_PAGE.write(tables())
