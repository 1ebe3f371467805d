"""The control address and the command that uses it: what they answer, and what they refuse."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from app.local.processes import ROOT
from tests.worker.conftest import APP
from tests.worker.test_drain import HASTIEST, queued, reach, runs, start
from throttle.control import Control, ask, file_of, find
from throttle.errors import WorkerNotReached
from throttle.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worker.conftest import Fleet

AS_APP = ("-m", "app", "drain")
AS_CELERY = ("-m", "celery", "-A", APP, "throttle", "drain")


def command(
    fleet: Fleet, program: tuple[str, ...], *arguments: str, pod: str = "pod"
) -> subprocess.CompletedProcess[str]:
    """What a preStop hook runs in the worker's container."""
    return subprocess.run(
        [sys.executable, *program, *arguments],
        env=fleet.workers.placement.environment(POD_NAME=pod, TMPDIR=str(fleet.workers.folder)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def answer(control: Control, method: str, path: str, body: bytes | None = None, token: str = "") -> tuple[int, str]:
    """Status and text of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", control.port, timeout=5)
    connection.request(method, path, body, {"Authorization": f"Bearer {token or control.token}"})
    found = connection.getresponse()
    text = found.read().decode()
    connection.close()
    return found.status, text


def raw(control: Control, sent: bytes) -> bytes:
    """What comes back for bytes that are no proper request."""
    with socket.create_connection(("127.0.0.1", control.port), 5) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(1 << 16)


REFUSED = (
    ("POST", "/drain", b"soon", 400, 'allowed is a JSON object such as {"timeout": 30}, or nothing'),
    ("POST", "/drain", b"[30]", 400, 'allowed is a JSON object such as {"timeout": 30}, or nothing'),
    ("POST", "/drain", b'{"time": 30}', 400, 'allowed is a JSON object such as {"timeout": 30}, or nothing'),
    *(
        ("POST", "/drain", b'{"timeout": %s}' % value, 400, "timeout: allowed is a number of seconds")
        for value in (b"-1", b"true", b'"30"', b"NaN", b"1e9")
    ),
    ("GET", "/", None, 404, "there is /drain, and nothing else"),
    ("DELETE", "/drain", None, 405, "allowed is GET or POST"),
)


def test_what_cannot_be_read_changes_nothing(fleet: Fleet) -> None:
    start(fleet, "solo")
    control = reach(fleet)
    for method, path, body, status, line in REFUSED:
        found = answer(control, method, path, body)
        assert (found[0], found[1].partition(" from")[0].strip()) == (status, line), (method, path, body)
    assert answer(control, "POST", "/drain", b"{}", token="guessed")[0] == 401  # noqa: S106 - a wrong one
    large = b"x" * 4_000_000  # it is refused before all of it is sent: the answer must get through
    for sent in (b"", b"hello\r\n\r\n", b"POST /drain HTTP/1.1\r\nContent-Length: x\r\n\r\n", large):
        assert raw(control, sent).startswith(b"HTTP/1.1 400 ")
    assert ask(control)["state"] == "working"
    file = fleet.workers.folder / "headroom-default-pod.control"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    taken = fleet.start("twin", pool="solo", ready=False, THROTTLE_CONTROL_PORT=str(control.port))[0]
    assert taken.wait(30) == 1
    assert f"headroom: THROTTLE_CONTROL_PORT={control.port}: Address already in use" in taken.read_log()
    os.kill(fleet.workers.pods[0].pid, signal.SIGTERM)
    assert fleet.workers.pods[0].wait(20) == 0
    assert not file.exists()


def test_one_who_speaks_slowly_keeps_nobody_out(fleet: Fleet) -> None:
    start(fleet, "solo")
    control = reach(fleet)
    with socket.create_connection(("127.0.0.1", control.port), 5) as slow:
        slow.settimeout(0.5)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 40:  # twenty seconds, were it let
                slow.sendall(b"P")
                sent += 1
                with contextlib.suppress(TimeoutError):
                    if not slow.recv(100):
                        break
        assert sent < 20
    assert ask(control)["state"] == "working"


def test_a_twin_that_is_refused_leaves_the_address_of_the_living_one(fleet: Fleet) -> None:
    pod = start(fleet, "solo")
    control = reach(fleet)
    (twin,) = fleet.start("pod", pool="solo", ready=False, TMPDIR=str(fleet.workers.folder))
    assert twin.wait(30) == 1
    assert "already lives in fleet" in twin.read_log()
    assert reach(fleet) == control
    assert ask(reach(fleet), {})["asked_by"] == "command"
    assert pod.running


def test_the_command_waits_until_the_worker_is_dry(fleet: Fleet) -> None:
    pod = start(fleet, "prefork")
    task = fleet.send("draining", "asks", 1.0)
    runs(fleet, task)
    drained = command(fleet, AS_APP, "--wait", "--json", "--timeout", "60")
    assert drained.returncode == 0, drained
    assert json.loads(drained.stdout) == ask(reach(fleet)) | {"deadline_s": json.loads(drained.stdout)["deadline_s"]}
    assert f"pod pod draining: 1 running: {APP}.draining[{task}], " in drained.stderr
    assert fleet.workers.done() == [task]
    again = command(fleet, AS_CELERY, "--wait")
    assert (again.returncode, again.stdout) == (0, "pod pod dry: nothing is held, and the fleet is left\n")
    assert pod.running


def test_the_command_names_what_is_left_over(fleet: Fleet) -> None:
    pod = start(fleet, "prefork", **HASTIEST)
    task = fleet.send("draining", "ignores")
    runs(fleet, task)
    drained = command(fleet, AS_APP, "--wait")
    assert (drained.returncode, drained.stdout) == (3, f"pod pod left over: {APP}.draining[{task}]\n")
    pod.kill()
    gone = command(fleet, AS_APP, "--json")
    assert gone.returncode == 4
    assert json.loads(gone.stdout)["state"] == "not reached"
    assert len(gone.stderr.splitlines()) == 1
    assert queued(fleet) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--timeout", "-1"], "argument --timeout: '-1' is not allowed: a number of seconds from 0 to 86400"),
        (["--timeout", "soon"], "argument --timeout: 'soon' is not allowed: a number of seconds from 0 to 86400"),
        (["--what"], "no such option '--what'"),
    ],
)
def test_a_wrong_argument_is_one_line(fleet: Fleet, arguments: list[str], said: str) -> None:
    for program in (AS_APP, AS_CELERY):
        refused = command(fleet, program, *arguments)
        assert (refused.returncode, refused.stdout) == (2, ""), refused
        (line,) = refused.stderr.splitlines()
        assert f"drain: {said}" in line
        assert line.endswith("drain --help)")


def test_somebody_else_at_the_address_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def serve() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(WorkerNotReached, match="somebody else than this worker answers"):
            ask(Control(port, "token", 1))
    with pytest.raises(WorkerNotReached, match="nobody answers"):
        ask(Control(99999, "token", 1))


def test_a_file_that_others_may_read_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = load_settings(pod="a/b", fleet="default")
    with pytest.raises(WorkerNotReached, match="does not run here, or is not up yet"):
        find(settings)
    file = file_of(settings)
    assert file.parent == tmp_path
    file.write_text(json.dumps({"port": 1, "token": "t", "pid": 1}))
    file.chmod(0o644)
    with pytest.raises(WorkerNotReached, match="it is not believed"):
        find(settings)
    file.chmod(0o600)
    assert find(settings) == Control(1, "t", 1)
    file.write_text("no JSON")
    with pytest.raises(WorkerNotReached, match="cannot be read"):
        find(settings)
