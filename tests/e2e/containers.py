"""pytest-celery's containers as processes of this machine.

pytest-celery describes a setup by nodes (a broker, a back end, workers), and each node speaks to a
container: is it ready, what does it log, kill it, start it again. It asks nothing else of it. These
classes answer with a real server and real worker processes, so that its fixtures and its checks
work where no container engine is. What must not outlive the test run is owned by the run's guard.
"""
# pyright: basic

from __future__ import annotations

import contextlib
import signal as signals
from typing import TYPE_CHECKING, Any

import celery
from pytest_celery import CeleryTestWorker

from app.local.processes import is_ready, start_pod, wait_ready

if TYPE_CHECKING:
    from app.local.guard import Guard, Process
    from app.local.processes import Placement
    from app.local.servers import Server


class ProcessContainer:
    """What pytest-celery asks of a container, answered by one process."""

    def __init__(self, name: str) -> None:
        """``name`` is the container's, and its id."""
        self.name = name
        self.id = name

    @property
    def process(self) -> Process:
        """The process as it is now; another one after a restart."""
        raise NotImplementedError

    @property
    def status(self) -> str:
        """``running`` or ``exited``."""
        return "running" if self.process.running else "exited"

    def logs(self) -> str:
        """Everything that was printed since the first start."""
        return self.process.read_log()

    def kill(self, signal: str | int = "SIGKILL") -> None:
        """Send a signal to all processes of the group; returns when a SIGKILL has ended them."""
        number = signals.Signals[signal] if isinstance(signal, str) else signals.Signals(signal)
        if number == signals.SIGKILL:
            self.process.kill()
        else:
            self.process.send(number)

    def reload(self) -> None:
        """Nothing to fetch anew: every answer is of the moment."""

    def teardown(self) -> None:
        """Its owner ends it."""


class ServerContainer(ProcessContainer):
    """A broker or a result back end: one database of a server."""

    def __init__(self, server: Server, database: int) -> None:
        """``server`` runs already."""
        super().__init__(f"{server.kind}-{database}")
        self._server = server
        self._database = database

    @property
    def process(self) -> Process:
        """The server's process."""
        return self._server.process

    @property
    def celeryconfig(self) -> dict[str, Any]:
        """The parts of the address."""
        url = f"redis://127.0.0.1:{self._server.port}/{self._database}"
        return {
            "url": url,
            "host_url": url,
            "hostname": "127.0.0.1",
            "port": self._server.port,
            "vhost": str(self._database),
        }

    def ready(self) -> bool:
        """Whether it answers."""
        with self._server.client() as client:
            return bool(client.ping())

    def restart(self, timeout: float = 10.0) -> None:
        """Stop in order and start again on the same port; data stays where the server's options say so."""
        del timeout
        self._server.stop()
        self._server.start()


class PodContainer(ProcessContainer):
    """A worker under a pod's name."""

    def __init__(self, guard: Guard, placement: Placement, name: str, *, pool: str, queue: str) -> None:
        """Start the pod and return at once; ``queue`` is where its normal work comes from."""
        super().__init__(name)
        self._guard, self._placement, self._pool, self._queue = guard, placement, pool, queue
        self._process = self._start()

    def _start(self) -> Process:
        return start_pod(self._guard, self._placement, self.name, pool=self._pool)

    @property
    def process(self) -> Process:
        """The worker's main process."""
        return self._process

    def ready(self) -> bool:
        """Wait until it consumes."""
        wait_ready([self._process])
        return is_ready(self._process)

    def restart(self, timeout: float = 10.0) -> None:
        """End it in order, or by force after ``timeout`` seconds, start it again under its name, and wait for it."""
        self._guard.end(self._process, patience_s=timeout)
        with contextlib.suppress(FileNotFoundError):
            self._process.log.unlink()
        self._process = self._start()
        self.ready()

    def teardown(self) -> None:
        """End it; what it still holds is of no interest."""
        self._guard.end(self._process, patience_s=0)

    def worker_name(self) -> str:
        """The first part of its node name."""
        return self.name

    def worker_queue(self) -> str:
        """Where its normal work comes from."""
        return self._queue

    @staticmethod
    def log_level() -> str:
        """As ``start_pod`` sets it."""
        return "INFO"

    @staticmethod
    def version() -> str:
        """The version of Celery: that of this environment."""
        return celery.__version__


class PodNode(CeleryTestWorker):
    """A worker node whose node name is the pod's."""

    container: PodContainer

    def hostname(self) -> str:
        """As the worker calls itself."""
        return f"{self.container.name}@local"
