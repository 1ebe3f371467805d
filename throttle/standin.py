"""A stand-in for the heartbeat thread, for work that holds Python's lock longer than the TTL.

C code that does not release the GIL stops every thread of its process, the one that beats included. On prefork the work
runs in children and the main process is free; on threads, solo and gevent it would make a busy pod look dead. So a tiny
process of its own waits beside the pod and beats in its place, but only when a beat is overdue:

    pod        after each beat that Redis accepted, one line to the stand-in's pipe: the member (and the server's
               address, which Sentinel may change)
    stand-in   no line for GRACE of a beat, and the pod is its parent still and is not stopped (as by a debugger): BEAT

It never joins: a member that the fleet gave up stays given up until the pod itself joins anew. It ends with its parent,
however that ends: its pipe closes, or it finds that it has another parent, and it beats for nobody before looking.
What a crash of the stand-in leaves is a pod without one; the next beat starts another.

A pod that hangs for ever with a stand-in beside it stays alive in the fleet, as any hanging process with a living
heartbeat thread does. That is for the liveness probe to find.

Linux only (it reads /proc to see a stopped pod); elsewhere `available` is False and nothing is started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import redis

from throttle.keys import Keys
from throttle.scripts import Operations, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

GRACE = 0.9
"""The pod is overdue after so much of a beat: it beats more often, and after one its name may be taken over."""
ANSWER_S = 5.0
STOPPED = frozenset("TtZX")
"""States in /proc/<pid>/stat of a process that must be let die: stopped, traced, zombie, dead."""


class StandIn:
    """The pod's side: one child process, told of each beat. Not thread-safe; the heartbeat thread owns it."""

    available = sys.platform == "linux"

    def __init__(self, operations: Operations, beat_s: float) -> None:
        """Prepare; the first `renewed` starts the process."""
        self._operations = operations
        self._beat_s = beat_s
        self._process: subprocess.Popen[bytes] | None = None

    def renewed(self, member: str) -> None:
        """Tell that this member has just beaten ('': that there is none to beat for).

        Starts the process when there is none (any more). Never raises.
        """
        if not self.available:
            return
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self._process = self._start()
        self._write({"member": member, "address": self._address(), "beaten_s": time.monotonic()})

    @property
    def pid(self) -> int | None:
        """Of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    def stop(self) -> None:
        """End the process and wait for it."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):  # it has died before
                process.stdin.close()
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        pool = self._operations.client.connection_pool
        # `-c`, not `-m`: the child must find this very library, wherever the pod's own path found it
        process = subprocess.Popen(
            [sys.executable, "-c", "from throttle.standin import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._process = process
        self._write({
            "parent": os.getpid(),
            "beat_s": self._beat_s,
            "keys": [self._operations.keys.fleet, self._operations.keys.prefix],
            "rule": list(self._operations.rule),
            "connection": connection_name(pool.connection_class),
            "settings": plain(pool.connection_kwargs),
        })  # fmt: skip
        return process

    def _write(self, line: Mapping[str, Any]) -> None:
        pipe = self._process.stdin if self._process is not None else None
        if pipe is None:
            return
        try:
            pipe.write(json.dumps(line).encode() + b"\n")
            pipe.flush()
        except OSError:  # it has died: the next beat starts another
            return

    def _address(self) -> list[Any] | None:
        """Where Sentinel found the master last; None for any other connection."""
        found = getattr(self._operations.client.connection_pool, "master_address", None)
        return list(found) if found else None


def connection_name(connection: type) -> str:
    """The plain redis-py class behind a connection class, as module:name; Sentinel's own classes ask for an address."""
    for base in connection.__mro__:
        if base.__module__ == "redis.connection":
            return f"{base.__module__}:{base.__name__}"
    message = f"{connection} is no connection of redis-py"
    raise TypeError(message)


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a connection that a child can be told: numbers, words and yes or no."""
    return {name: value for name, value in settings.items() if value is None or isinstance(value, str | int | float)}


def main() -> None:
    """The stand-in process: reads its pipe, beats when the pod is overdue, ends with the pod."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the whole group is told to stop: it ends when the pod does
    lines = Lines(sys.stdin.fileno())
    task = lines.next(None)
    operations: Operations | None = None
    member, address = "", None
    due_s = time.monotonic()
    while task is not None:
        line = lines.next(max(0.0, due_s - time.monotonic()))
        due_s = time.monotonic() + task["beat_s"] * GRACE
        if line is None or os.getppid() != task["parent"]:
            return
        if line:
            if line["address"] != address:
                address, operations = line["address"], None
            member = line["member"]
            due_s = line["beaten_s"] + task["beat_s"] * GRACE  # this clock is the machine's, the same in each process
        elif member and not is_stopped(task["parent"]):
            operations = operations or operations_of(task, address)
            member = beat(operations, member)


def beat(operations: Operations, member: str) -> str:
    """Beat for the member; '' when the fleet has given it up. A Redis that is away is tried again next time, anew."""
    try:
        return "" if operations.beat(member).standing == "lost" else member
    except (redis.RedisError, OSError):
        operations.client.connection_pool.disconnect()  # to a replica, perhaps, where a master was
        return member


def operations_of(task: Mapping[str, Any], address: list[Any] | None) -> Operations:
    """The fleet's operations over a connection like the pod's."""
    module, name = str(task["connection"]).split(":")
    settings = {"socket_timeout": ANSWER_S, **{k: v for k, v in task["settings"].items() if v is not None}}
    if address is not None:
        settings["host"], settings["port"] = address
    made: Any = redis.ConnectionPool
    pool = made(connection_class=getattr(import_module(module), name), **settings)
    rule = Rule(*cast("list[Any]", task["rule"]))
    return Operations(redis.Redis(connection_pool=pool), Keys(*task["keys"]), rule)


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped or gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in STOPPED


class Lines:
    """Lines of JSON from a pipe, with a time limit."""

    def __init__(self, fd: int) -> None:
        """Read from this descriptor."""
        self._fd = fd
        self._rest = b""

    def next(self, timeout_s: float | None) -> dict[str, Any] | None:
        """The next line; {} when none came in time, None when the pipe was closed."""
        while b"\n" not in self._rest:
            if not select.select([self._fd], [], [], timeout_s)[0]:
                return {}
            got = os.read(self._fd, 65536)
            if not got:
                return None
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        return cast("dict[str, Any]", json.loads(line))


if __name__ == "__main__":
    main()
