"""The health check, as the container's engine runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from app.container import health, lifesign
from app.local.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the check in a container whose temporary folder is this one."""
    return subprocess.run(
        [sys.executable, "-m", "app.container", "health", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def sign(folder: Path, role: str, age_s: float) -> None:
    """A sign of life that was given so long ago."""
    file = folder / f"{role}.alive"
    file.touch()
    given = file.stat().st_mtime - age_s
    os.utime(file, (given, given))


@pytest.fixture
def flower() -> Iterator[str]:
    """A page that answers as Flower's does."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
            """Be quiet."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/healthcheck"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("role", ["worker", "beat"])
def test_a_role_is_well_while_its_sign_of_life_is_fresh(tmp_path: Path, role: str) -> None:
    sign(tmp_path, role, age_s=1)
    answer = check(tmp_path, role)
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("role", ["worker", "beat"])
def test_a_role_that_gave_no_sign_for_a_while_is_not_well(tmp_path: Path, role: str) -> None:
    sign(tmp_path, role, age_s=lifesign.STALE_S + 5)
    answer = check(tmp_path, role)
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"{role} gave its last sign of life 20 s ago")


def test_a_worker_that_is_not_up_is_not_well(tmp_path: Path) -> None:
    answer = check(tmp_path, "worker")
    assert answer.returncode == 1
    assert answer.stderr.startswith("worker is not up")


def test_flower_is_well_when_its_page_answers(flower: str) -> None:
    assert health.complaint("flower", flower=flower) is None


def test_flower_is_not_well_when_nobody_answers() -> None:
    found = health.complaint("flower", flower=f"http://127.0.0.1:{free_port()}/healthcheck")
    assert found is not None
    assert found.startswith("flower does not answer")


@pytest.mark.parametrize("arguments", [(), ("redis",), ("worker", "beat")])
def test_what_is_no_role_is_refused_with_the_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    answer = check(tmp_path, *arguments)
    assert answer.returncode == 2
    assert answer.stderr == "usage: python3 -m app.container health worker|beat|flower\n"


def test_a_check_loads_neither_celery_nor_redis() -> None:
    program = "import json, sys, app.container.__main__; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert {"celery", "kombu", "pydantic", "redis", "throttle"} & set(json.loads(answer.stdout)) == set()
