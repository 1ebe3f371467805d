"""The page tells what the tests replay: each row names a test that there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.faults.table import ON_PAGE, TESTS, read, tables

ROWS = [row for group in read() for row in group.rows]


def collected(files: set[str]) -> set[str]:
    """Names of the tests in these files below tests/, as pytest collects them, with and without parameters."""
    # Nothing of an engine is used to collect; without the variable pytest leaves the tests of the stack out.
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *sorted(files)],
        cwd=TESTS,
        env={**os.environ, "HEADROOM_DOCKER": "docker"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    names = {line.removeprefix("tests/") for line in answer.stdout.splitlines() if "::" in line}
    return names | {name.partition("[")[0] for name in names}


def test_the_page_shows_the_reports() -> None:
    assert ON_PAGE.read() == tables(), "write it anew: python -m tests.faults.table"


def test_there_are_enough_rows_and_each_is_whole() -> None:
    assert len(ROWS) >= 25
    for row in ROWS:
        assert row.reports
        assert all(re.fullmatch(r"(celery|kombu|[\w.-]+/[\w.-]+)#\d+", report) for report in row.reports)
        assert all(cell.endswith(".") and "|" not in cell for cell in (row.fault, row.before, row.headroom))


def test_no_report_is_told_of_twice() -> None:
    told = [report for row in ROWS for report in row.reports]
    assert len(told) == len(set(told))


def test_each_row_names_a_test_that_there_is() -> None:
    named = {row.test for row in ROWS}
    there = collected({name.partition("::")[0] for name in named})
    assert named - there == set()


def test_the_words_above_the_tables_name_files_that_there_are() -> None:
    files = set(re.findall(r"((?:\w+/)+test_\w+\.py)", ON_PAGE.page.read_text(encoding="utf-8")))
    assert [name for name in files if not (TESTS / name.removeprefix("tests/")).is_file()] == []
