"""``python -m app`` as a person uses it: the demonstration, its bill, bad arguments, and Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from rich.console import Console

from app.command_line import settle
from app.local.processes import ROOT
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def run(*arguments: str, timeout_s: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.mark.proof
@pytest.mark.timeout(180)
def test_the_demonstration_keeps_every_promise() -> None:
    answer = run("demo", "--tasks", "80", "--pods", "4", "--seconds", "0.15", "--json", timeout_s=150)
    assert answer.returncode == 0, answer.stderr
    (line,) = answer.stdout.splitlines()
    figures: dict[str, Any] = json.loads(line)
    expected: dict[str, Any] = {
        "tasks": 80,
        "done": 80,
        "lost": 0,
        "violations": 0,
        "requeues": 0,
        "out_of_order": 0,
        "kills": 1,
        "returned": 1,
        "files_identical": 6,
        "broken": [],
    }
    assert {name: figures[name] for name in expected} == expected
    assert len(figures["critical_ms"]) == 5
    assert figures["order_checked"] >= 80, "the check of the order must not be an empty one"
    assert figures["doubled"] in (0, 1)
    assert figures["seconds"] < figures["total_seconds"]
    assert "is killed (SIGKILL)" in answer.stderr
    assert "every promise was kept" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["demo", "--pods", "0"], "--pods: '0' is not allowed: a whole number from 1 to 50"),
        (["demo", "--tasks", "-1"], "--tasks: '-1' is not allowed: a whole number from 1 to 100000"),
        (["demo", "--tasks", "many"], "--tasks: 'many' is not allowed: a whole number from 1 to 100000"),
        (["demo", "--seconds", "abc"], "--seconds: 'abc' is not allowed: a number of seconds from 0 to 60"),
        (["demo", "--seconds", "-0.1"], "--seconds: '-0.1' is not allowed"),
        (["demo", "--seconds", "inf"], "--seconds: 'inf' is not allowed"),
        (["demo", "--no-such"], "unrecognized arguments: --no-such"),
        (["demo", "shards", "--pods", "4"], "demo: argument --pods: not allowed with shards, which takes --json alone"),
        (["up", "--pods", "51"], "--pods: '51' is not allowed"),
        (["up", "--folder", "/no/such/folder"], "--folder: '/no/such/folder' is not a folder"),
        (
            ["drain", "--timeout", "abc"],
            "drain: argument --timeout: 'abc' is not allowed: a number of seconds from 0 to",
        ),
        (["drain", "--timeout", "nan"], "--timeout: 'nan' is not allowed: a number of seconds from 0 to 86400"),
        (["drain", "--timeout"], "drain: option '--timeout' requires an argument (see python -m app drain --help)"),
        (["drain", "--tmeout", "3"], "no such option '--tmeout'. Did you mean '--timeout'?"),
        (["drain", "web-1"], "got unexpected extra argument (web-1) (see python -m app drain --help)"),
        (
            ["checkpoints", "--jso", "x"],
            "unrecognized arguments: x (see python -m app checkpoints --help)",
        ),
        (["shards", "target", "many"], "'many' is not allowed: a whole number from 1 to 16384"),
        (["shards", "dance"], "invalid choice: 'dance'"),
        (["dance"], "invalid choice: 'dance'"),
        ([], "arguments are required: COMMAND"),
    ],
)
def test_a_bad_argument_is_one_line_and_code_2(arguments: Sequence[str], reason: str) -> None:
    answer = run(*arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert reason in line


def test_the_verdict_is_one_line_however_long_it_is_and_the_exit_code_tells() -> None:
    output, broken = io.StringIO(), ["1 lost, 0 doubled, 0 out of order, of 1500", "Discord refused 2 identifies"]
    assert settle(Console(file=output, width=60), {"events": 1500, "broken": broken}, as_json=False) == 1
    assert output.getvalue().splitlines()[-1] == f"broken: {'; '.join(broken)}"


def test_outside_of_the_environment_it_names_what_is_missing_and_what_brings_it() -> None:
    for command in (["drain"], ["shards"], ["demo"], []):
        # without `site` Python finds no packages but its own, as one does that is not the environment's
        answer = subprocess.run(
            [sys.executable, "-S", "-m", "app", *command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (answer.returncode, answer.stdout) == (1, "")
        (line,) = answer.stderr.splitlines()
        assert line.startswith("headroom: ")
        assert " has no package " in line
        assert f"call {ROOT / '.venv' / 'bin' / 'python'} -m app in its place" in line


def test_in_the_image_it_has_all_but_the_local_fleet(tmp_path: Path) -> None:
    left_out = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#", "!")]
    assert left_out == ["*", "app/local", "**/__pycache__"]
    for package in ("app", "tasks", "throttle"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("local", "__pycache__"))

    def there(*arguments: str) -> tuple[int, str]:
        answer = subprocess.run(
            [sys.executable, "-m", "app", *arguments],
            cwd=tmp_path,
            env={**os.environ, "REDIS_URL": "redis://127.0.0.1:1/0", "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        (line,) = answer.stderr.splitlines()
        return answer.returncode, line

    assert there("demo") == (
        1,
        "headroom: demo and up are not part of an image: they run where the repository is, as ./run demo and ./run up",
    )
    code, line = there("drain")
    assert (code, line.startswith("headroom: ")) == (4, True), line
    code, line = there("checkpoints")
    assert (code, "the store of checkpoints does not answer" in line) == (69, True), line


def test_what_is_wrong_is_said_of_the_command_that_was_called() -> None:
    for called in ("./run", "../headroom/run"):
        assert run("demo", "--pods", "0", HEADROOM_COMMAND=called).stderr.startswith(f"{called} demo: argument --pods")
    assert run("demo", "--pods", "0", HEADROOM_COMMAND="").stderr.startswith("python -m app demo: argument --pods")


@pytest.mark.parametrize("command", [(), ("shards",)])
def test_each_command_is_on_its_page(command: tuple[str, ...]) -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    names = re.findall(r"^    (\w+)", run(*command, "--help").stdout, re.MULTILINE)
    assert len(names) >= 3
    assert [name for name in names if f"| `{' '.join(('python -m app', *command, name))}" not in page] == []


@pytest.fixture
def fleet() -> Iterator[subprocess.Popen[str]]:
    """``python -m app up`` with two pods, as a process."""
    with subprocess.Popen(
        [sys.executable, "-m", "app", "up", "--pods", "2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        if process.poll() is None:
            process.kill()


def read_until(process: subprocess.Popen[str], wanted: str) -> list[str]:
    """Lines of the output up to the first that contains ``wanted``."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if wanted in line:
            return lines
    raise AssertionError(f"{wanted!r} did not come: {lines}")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_local_fleet_can_be_used_and_ends_whole(fleet: subprocess.Popen[str], number: signal.Signals) -> None:
    lines = read_until(fleet, "Ctrl-C")
    family = psutil.Process(fleet.pid).children(recursive=True)
    assert len(family) >= 7, "a server, two pods with a child each, beat, Flower, the watcher"
    (command,) = [line.partition("a task")[2].strip() for line in lines if "a task" in line]
    sent = subprocess.run(["sh", "-c", command], cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert sent.returncode == 0, sent.stderr
    read_until(fleet, "busy 1")

    flower = next(line.split()[1] for line in lines if line.strip().startswith("Flower"))
    with urllib.request.urlopen(flower, timeout=10) as page:  # noqa: S310 - our own http address
        assert page.status == 200
    logs = Path(next(line.split()[1] for line in lines if line.strip().startswith("logs")))
    assert logs.is_dir()
    os.kill(fleet.pid, number)
    code = fleet.wait(30)
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    wait_until(lambda: not any(is_there(process) for process in family), 20, what="the end of the whole fleet")
    wait_until(lambda: not logs.exists(), what="the removal of its folder")
    if number != signal.SIGKILL:
        assert fleet.stderr is not None
        assert fleet.stderr.read() == "interrupted; everything that was started is ended\n"


def is_there(process: psutil.Process) -> bool:
    """Whether a process still lives (a zombie that nobody collected does not)."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
