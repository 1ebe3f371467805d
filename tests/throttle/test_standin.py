"""The stand-in beats for a pod whose work holds the GIL, and for no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from tests.support.waiting import wait_until
from throttle.keys import Keys
from throttle.scripts import Operations, Rule
from throttle.standin import StandIn, connection_name, is_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

BEAT_S = 0.3
TTL_MS = 1500
POD = """
import ctypes, sys, redis
from throttle.keys import Keys
from throttle.scripts import Operations, Rule
from throttle.standin import StandIn
ops = Operations(redis.Redis.from_url(sys.argv[1]), Keys("s"), Rule(0.8, int(sys.argv[3]), 5))
ops.join("pod#1")
standin = StandIn(ops, float(sys.argv[2]))
standin.renewed("pod#1")
print(standin.pid, flush=True)
for line in sys.stdin:
    if line.strip() == "hog":
        ctypes.PyDLL(None).sleep(60)      # PyDLL keeps the GIL for as long as the call takes
"""


class Pod:
    """A process that joins once, never beats by itself, and has a stand-in."""

    def __init__(self, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", POD, url, str(BEAT_S), str(TTL_MS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.standin = int(self.process.stdout.readline())

    def hog(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("hog\n")
        self.process.stdin.flush()


@pytest.fixture
def pod(server: Any) -> Iterator[Pod]:
    made = Pod(server.url)
    yield made
    made.process.kill()
    made.process.wait()
    for pipe in (made.process.stdin, made.process.stdout):
        assert pipe is not None
        pipe.close()
    wait_until(lambda: is_stopped(made.standin), timeout_s=5)


@pytest.fixture
def ops(server: Any) -> Operations:
    return Operations(server, Keys("s"), Rule(0.8, TTL_MS, 5))


def beats(server: Any) -> float:
    """When the pod has beaten last, server ms."""
    return server.zscore(Keys("s").alive(), "pod#1") or 0


def test_a_pod_that_hogs_the_lock_stays_alive(server: Any, ops: Operations, pod: Pod) -> None:
    pod.hog()
    first = beats(server)
    wait_until(lambda: beats(server) - first > 2 * TTL_MS, timeout_s=15)
    assert ops.counts().alive == 1


def test_a_stopped_pod_is_let_die(ops: Operations, pod: Pod) -> None:
    pod.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: ops.counts().silent == 1, timeout_s=10)
    pod.process.send_signal(signal.SIGCONT)
    wait_until(lambda: ops.counts().alive == 1, timeout_s=10)


def test_it_ends_with_a_killed_pod(ops: Operations, pod: Pod) -> None:
    pod.process.kill()
    wait_until(lambda: is_stopped(pod.standin), timeout_s=5)
    wait_until(lambda: ops.counts().silent == 1, timeout_s=10)


def test_signals_for_the_group_do_not_end_it_before_its_pod(server: Any, pod: Pod) -> None:
    first = beats(server)
    wait_until(lambda: beats(server) > first, timeout_s=5)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pod.standin, number)
    later = beats(server)
    wait_until(lambda: beats(server) > later, timeout_s=5)


def test_it_does_not_beat_while_the_pod_does(server: Any, ops: Operations) -> None:
    ops.join("pod#1")
    standin = StandIn(ops, BEAT_S)
    scripts: list[int] = []
    standin.renewed("pod#1")

    def beaten_by_the_pod() -> bool:
        standin.renewed("pod#1")
        scripts.append(server.info("commandstats")["cmdstat_evalsha"]["calls"])
        return len(scripts) > 100

    wait_until(beaten_by_the_pod, timeout_s=10)
    standin.stop()
    assert scripts[-1] == scripts[0]


def test_it_never_joins_for_a_member_that_was_given_up(server: Any, ops: Operations) -> None:
    standin = StandIn(ops, BEAT_S)
    server.config_resetstat()
    standin.renewed("ghost#1")
    wait_until(lambda: server.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0) > 0, timeout_s=5)
    assert ops.counts() == (0, 0, 1, 0, 0, 0, 0, 0)
    standin.stop()


def test_a_stand_in_that_died_is_replaced_at_the_next_beat(ops: Operations) -> None:
    standin = StandIn(ops, BEAT_S)
    standin.renewed("pod#1")
    first = standin.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: is_stopped(first), timeout_s=5)
    standin.renewed("pod#1")
    assert standin.pid not in (first, None)
    standin.stop()


def test_passwords_are_not_on_the_command_line(server: Any, pod: Pod) -> None:
    line = Path(f"/proc/{pod.standin}/cmdline").read_text(encoding="utf-8")
    assert "redis" not in line.replace("throttle.standin", "")


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (redis.Connection, "redis.connection:Connection"),
        (redis.SSLConnection, "redis.connection:SSLConnection"),
        (redis.UnixDomainSocketConnection, "redis.connection:UnixDomainSocketConnection"),
        (SentinelManagedConnection, "redis.connection:Connection"),
        (SentinelManagedSSLConnection, "redis.connection:SSLConnection"),
    ],
)
def test_every_kind_of_connection_has_a_plain_class(made: type[Any], name: str) -> None:
    assert connection_name(made) == name
