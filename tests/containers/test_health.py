"""The health check, as the container's engine runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from app.local.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Generator


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the check."""
    command = [sys.executable, "-m", "app.container", "health", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@contextmanager
def page(path: str, status: int, body: bytes) -> Generator[str]:
    """A server that answers so on one path; its port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == path else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name for it
            """Be quiet."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield str(server.server_port)
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("role", "path"), [("worker", "/ready"), ("beat", "/ready"), ("flower", "/healthcheck")])
def test_a_role_is_well_when_its_page_says_so(role: str, path: str) -> None:
    with page(path, 200, b"OK") as port:
        answer = check(role, port)
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("role", ["worker", "beat"])
def test_a_role_that_is_not_well_says_why(role: str) -> None:
    with page("/ready", 503, b'{"reasons": ["it drains", "Redis does not answer"]}') as port:
        answer = check(role, port)
    assert (answer.returncode, answer.stderr) == (1, f"{role}: it drains; Redis does not answer\n")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"reasons": 3}'])
def test_what_is_no_answer_of_ours_is_told_by_its_status(body: bytes) -> None:
    with page("/ready", 500, body) as port:
        answer = check("worker", port)
    assert (answer.returncode, answer.stderr) == (1, "worker: HTTP Error 500: Internal Server Error\n")


@pytest.mark.parametrize("role", ["worker", "beat", "flower"])
def test_a_role_is_not_well_when_nobody_answers(role: str) -> None:
    answer = check(role, str(free_port()))
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"{role} does not answer")


@pytest.mark.parametrize("arguments", [(), ("redis",), ("worker", "beat"), ("worker", "1", "2")])
def test_what_is_no_role_is_refused_with_the_usage(arguments: tuple[str, ...]) -> None:
    answer = check(*arguments)
    assert answer.returncode == 2
    assert answer.stderr == "usage: python3 -m app.container health worker|beat|flower [PORT]\n"


def test_a_check_loads_neither_celery_nor_redis() -> None:
    program = "import json, sys, app.container.__main__; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert {"celery", "kombu", "pydantic", "redis", "throttle"} & set(json.loads(answer.stdout)) == set()
