"""Local processes really end: in order, when killed, and when their owner is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import redis

from app.local.guard import Guard
from app.local.servers import Server, ServerError
from tests.support.leaks import leaked_keys
from tests.support.waiting import WaitError, wait_until

if TYPE_CHECKING:
    from tests.support.servers import Client, StartServer

OWNER = """
import signal, sys
from app.local.guard import Guard
from app.local.servers import Server
guard = Guard()
server = Server(guard).start()
child = guard.start("tree", ["sh", "-c", "sleep 300 & sleep 300"], log=server.folder / "tree.log")
print(server.process.pid, child.pid, server.folder, flush=True)
signal.pause()
"""


def in_group(group: int) -> list[int]:
    """Living processes of one process group."""
    found: list[int] = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_owner(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as owner:
        assert owner.stdout is not None
        server_pid, tree_pid, folder = owner.stdout.readline().split()
        wait_until(lambda: len(in_group(int(tree_pid))) == 3, what="a tree of three processes")
        owner.send_signal(number)
    wait_until(lambda: not in_group(int(server_pid)), what="the server's end")
    wait_until(lambda: not in_group(int(tree_pid)), what="the end of the whole tree")
    wait_until(lambda: not Path(folder).exists(), what="the folder's removal")


def test_closing_ends_processes_that_ignore_terminate_or_are_frozen(tmp_path: Path) -> None:
    with Guard() as guard:
        deaf = guard.start("deaf", ["sh", "-c", "trap '' TERM; sleep 300"], log=tmp_path / "a")
        frozen = guard.start("frozen", ["sleep", "300"], log=tmp_path / "b")
        frozen.pause()
        guard.close(patience_s=0.2)
        assert deaf.exit_code is not None
        assert frozen.exit_code is not None
        assert not in_group(deaf.pid)


def test_a_program_that_does_not_exist_says_so_in_its_log(tmp_path: Path) -> None:
    with Guard() as guard:
        process = guard.start("none", ["/no/such/program"], log=tmp_path / "log")
        assert process.wait(5) == 127
        assert "/no/such/program" in process.read_log()


def test_a_server_answers_and_is_empty(server: Client) -> None:
    assert server.ping()
    assert server.dbsize() == 0
    assert redis.Redis.from_url(server.url).ping()


def test_a_server_restarts_on_its_port_with_its_data(start_server: StartServer) -> None:
    server = start_server("valkey", {"appendonly": "yes", "appendfsync": "always"})
    server.client().set("kept", "yes")
    port = server.port
    server.kill()
    server.start()
    assert server.port == port
    assert server.client(decode=True).get("kept") == "yes"


def test_a_wrong_option_is_named() -> None:
    with Guard() as guard, pytest.raises(ServerError, match="ended at its start"):
        Server(guard, options={"no-such-option": "1"}).start()


def test_leaks_are_the_keys_without_expiry(valkey: Client) -> None:
    valkey.set("gone-soon", 1, ex=100)
    valkey.sadd("_kombu.binding.task_queue", "x")
    valkey.set("kept-on-purpose", 1)
    valkey.set("leak", 1)
    assert leaked_keys(valkey, ["kept-*"]) == ["leak"]


def test_waiting_in_vain_says_for_what() -> None:
    with pytest.raises(WaitError, match=r"waited 0 s in vain for: rain"):
        wait_until(lambda: False, 0, what="rain")


def test_the_log_of_a_process_is_its_own_even_where_another_wrote_before(tmp_path: Path) -> None:
    with Guard() as guard:
        first = guard.start("echo", ["echo", "first"], log=tmp_path / "log")
        first.wait(5)
        second = guard.start("echo", ["echo", "second"], log=tmp_path / "log")
        second.wait(5)
        assert second.read_log() == "second\n"
        assert (tmp_path / "log").read_text() == "first\nsecond\n"
