"""Counts the commands that reach a server, and tells which process sent each of them.

MONITOR reports every command. What a script calls carries the mark ``lua`` and costs no round trip;
it is left out, but for the bells that it rings; so are the commands by which a connection is set up.
"""

from __future__ import annotations

import threading
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import redis

from app.local.waiting import wait_until
from throttle.scripts import OPERATIONS, script

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SETTING_UP = ("HELLO", "AUTH", "SELECT", "MONITOR", "CLIENT SETINFO", "CLIENT SETNAME", "SCRIPT LOAD")
BEGIN, END = "benchmark-monitor-begin", "benchmark-monitor-end"
BELL = ":bell:"
LISTENING = "0A"


class Call(NamedTuple):
    """One command."""

    name: str
    """As the server names it; a script of the brake by its own name, in small letters."""
    database: int
    port: int
    """TCP port of the client that sent it."""


class Monitor:
    """The commands of a block, in their order; a context manager."""

    def __init__(self, client: redis.Redis) -> None:
        """Watch the server of ``client``, whose own commands are not counted."""
        self.calls: list[Call] = []
        self.bells = 0
        """How many bells were rung by scripts of the brake."""
        self._client = client
        self._own_port = int(str(cast("Any", client.client_info())["addr"]).rpartition(":")[2])
        options = client.connection_pool.connection_kwargs
        # A quiet server reports nothing for as long as it is quiet.
        self._watcher = redis.Redis(
            host=str(options["host"]), port=int(options["port"]), decode_responses=True, socket_timeout=None
        )
        self._seen: set[str] = set()
        self._thread = threading.Thread(target=self._follow, name="monitor", daemon=True)

    def __enter__(self) -> Self:
        """Return when the server has begun to report."""
        self._thread.start()
        wait_until(lambda: self._mark(BEGIN), what="MONITOR to begin")
        return self

    def __exit__(self, *_: object) -> None:
        """Return when everything sent before this is counted."""
        wait_until(lambda: self._mark(END), what="MONITOR to end")
        self._thread.join()
        self._watcher.close()

    def names(self, database: int = 0) -> Counter[str]:
        """How often each command was sent to a database."""
        return Counter(call.name for call in self.calls if call.database == database)

    def by_port(self) -> Counter[int]:
        """How many commands each client sent."""
        return Counter(call.port for call in self.calls)

    def ports_of(self, name: str) -> set[int]:
        """The clients that sent a command of this name."""
        return {call.port for call in self.calls if call.name == name}

    def _mark(self, word: str) -> bool:
        """Send a mark unless it has been seen, and tell whether it has."""
        if word not in self._seen:
            self._client.echo(word)
        return word in self._seen

    def _follow(self) -> None:
        with self._watcher.monitor() as stream:
            for entry in cast("Iterator[dict[str, Any]]", stream.listen()):
                text = str(entry["command"])
                if text in (f"ECHO {BEGIN}", f"ECHO {END}"):
                    self._seen.add(text.removeprefix("ECHO "))
                    if END in self._seen:
                        return
                elif entry["client_type"] == "tcp" and BEGIN in self._seen:
                    self._note(text, int(entry["db"]), int(entry["client_port"]))
                elif entry["client_type"] == "lua" and BEGIN in self._seen:
                    self.bells += text.startswith("LPUSH ") and BELL in text

    def _note(self, text: str, database: int, port: int) -> None:
        words = text.upper().split(" ", 2)
        if port == self._own_port or words[0] in SETTING_UP or " ".join(words[:2]) in SETTING_UP:
            return
        name = words[0]
        if name == "EVALSHA":
            name = _scripts().get(text.split(" ", 2)[1], name)
        self.calls.append(Call(name, database, port))


@cache
def _scripts() -> dict[str, str]:
    """Digest -> name of each operation of the brake."""
    return {script(name).sha: name for name in OPERATIONS}


def tcp_ports(groups: Iterable[int]) -> dict[int, int]:
    """Local TCP port -> the process group that has it open, for these groups (read from /proc)."""
    sockets: dict[str, int] = {}
    wanted = set(groups)
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            # The name in parentheses may contain anything; state, parent and group follow it.
            group = int((process / "stat").read_text().rpartition(")")[2].split()[2])
            if group in wanted:
                for link in (process / "fd").iterdir():
                    target = str(link.readlink())
                    if target.startswith("socket:["):
                        sockets[target.removeprefix("socket:[").removesuffix("]")] = group
        except OSError:
            continue  # it ended, or closed this file, while it was looked at
    ports: dict[int, int] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, state, inode = fields[1], fields[3], fields[9]
        if inode in sockets and state != LISTENING:
            ports[int(local.rpartition(":")[2], 16)] = sockets[inode]
    return ports
