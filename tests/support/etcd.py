"""A real etcd on a free port, from Debian's `etcd-server`; it ends with its guard, its data with it."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from app.local.servers import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.guard import Guard, Process

START_S = 30.0


class Etcd:
    """One member that is a cluster of its own; started again on the same port with the same data."""

    def __init__(self, guard: Guard) -> None:
        """Prepare. Fails the test, with the command that mends it, where this machine has no etcd."""
        program = shutil.which("etcd")
        if program is None:
            pytest.fail("etcd is not on the PATH (apt-get install etcd-server)", pytrace=False)
        self.folder = guard.folder("etcd")
        self.port, self._peers = free_port(), free_port()
        self._program, self._guard = program, guard
        self._process: Process | None = None

    @property
    def address(self) -> str:
        """As `CHECKPOINT_STORE` wants it."""
        return f"etcd://127.0.0.1:{self.port}"

    @property
    def process(self) -> Process:
        """The running process."""
        assert self._process is not None
        return self._process

    def start(self) -> Etcd:
        """Start and wait until it is well; returns itself."""
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._peers}"
        command = [
            self._program, "--name", "one", "--data-dir", str(self.folder / "data"), "--unsafe-no-fsync",
            "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}", "--log-level", "error",
        ]  # fmt: skip
        self._process = self._guard.start("etcd", command, log=self.folder / "log", cwd=self.folder)
        wait_until(
            self._is_well, START_S, what=lambda: f"etcd to be well: {self.process.read_log()[-500:]}", every_s=0.1
        )
        return self

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._guard.end(self._process)
            self._process = None

    def _is_well(self) -> bool:
        assert self.process.running, self.process.read_log()[-500:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2.0) as answer:
                return b'"true"' in answer.read()
        except (urllib.error.URLError, OSError):
            return False


@pytest.fixture(scope="session")
def etcd(guard: Guard) -> Etcd:
    """The etcd of the run. Tests keep apart by the names of their fleets."""
    return Etcd(guard).start()


@pytest.fixture
def own_etcd(guard: Guard) -> Iterator[Etcd]:
    """An etcd that the test may kill and freeze."""
    made = Etcd(guard).start()
    yield made
    made.kill()
