"""Worker pods, beat and Flower as real processes on this machine.

A "pod" here is what it is on Kubernetes as far as the brake can tell: one ``celery worker`` with its
pool, in a process group of its own, with a ``POD_NAME``. A kill takes the whole group, as the kernel
does when a container runs out of memory.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from app.local.servers import free_port
from app.local.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from app.local.guard import Guard, Process

ROOT = Path(__file__).resolve().parents[2]
RECORDER = "app.local.recorder"
START_S = 60.0

# What a person may have set for another Celery project; Celery's command line would obey it.
FOREIGN = ("APP", "BROKER_URL", "RESULT_BACKEND", "LOADER", "CONFIG_MODULE")


class StartError(RuntimeError):
    """A process ended instead of becoming ready; the message has its last lines."""


@dataclass(frozen=True)
class Placement:
    """Where the processes of one local fleet run, and with which settings."""

    redis_url: str
    folder: Path
    """Logs and working files; every process is started in it."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further environment variables, such as ``THROTTLE_TTL``."""
    app: str = "app.celery"
    """The application, as ``celery -A`` takes it."""

    def environment(self, **more: str) -> dict[str, str]:
        """This process's environment without other projects' Celery settings, with this fleet's."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in FOREIGN and not name.startswith(("CELERY_", "FLOWER_", "THROTTLE_"))
        }
        path = os.pathsep.join(filter(None, [str(ROOT), inherited.get("PYTHONPATH", "")]))
        ours = {"PYTHONPATH": path, "REDIS_URL": self.redis_url, "PROBE_PORT": "0"}  # many pods on one host
        return {**inherited, **ours, **self.settings, **more}

    def log(self, name: str) -> Path:
        """File that receives what the process of this name prints."""
        return self.folder / f"{name}.log"


def start_pod(
    guard: Guard,
    placement: Placement,
    name: str,
    *,
    pool: str = "prefork",
    concurrency: int = 1,
    arguments: Sequence[str] = (),
    include: Sequence[str] = (RECORDER,),
    events: bool = True,
) -> Process:
    """Start one worker under a pod's name and return at once; see :func:`wait_ready`.

    Args:
        guard: ends it.
        placement: where and with which settings.
        name: ``POD_NAME``, and the first part of the worker's node name.
        pool: ``prefork``, ``threads``, ``gevent`` or ``solo``.
        concurrency: tasks that the pod may run at once.
        arguments: further arguments of ``celery worker``.
        include: modules that the worker imports besides the application's own.
        events: tell Flower of each task.
    """
    command = [*_celery(placement), "worker", "--pool", pool, "--concurrency", str(concurrency)]
    command += ["--hostname", f"{name}@local", "--loglevel", "INFO"]
    if events:
        command += ["--events"]
    if include:
        command += ["--include", ",".join(include)]
    return guard.start(
        name,
        [*command, *arguments],
        log=placement.log(name),
        env=placement.environment(POD_NAME=name),
        cwd=placement.folder,
    )


def start_pods(guard: Guard, placement: Placement, count: int, *, pool: str = "prefork") -> list[Process]:
    """Start ``pod-1`` to ``pod-<count>`` side by side and return at once."""
    return [start_pod(guard, placement, f"pod-{number}", pool=pool) for number in range(1, count + 1)]


def start_beat(guard: Guard, placement: Placement) -> Process:
    """Start beat; what it has run stands in the fleet's Redis."""
    command = [*_celery(placement), "beat", "--loglevel", "INFO", "--pidfile", ""]
    return guard.start("beat", command, log=placement.log("beat"), env=placement.environment(), cwd=placement.folder)


def start_flower(guard: Guard, placement: Placement) -> tuple[Process, str]:
    """Start Flower on a free port; returns the process and the address of its page."""
    port = free_port()
    command = [*_celery(placement), "flower", "--address=127.0.0.1", f"--port={port}"]
    process = guard.start(
        "flower", command, log=placement.log("flower"), env=placement.environment(), cwd=placement.folder
    )
    return process, f"http://127.0.0.1:{port}/"


def is_ready(pod: Process) -> bool:
    """Whether the worker consumes. StartError when it ended instead."""
    check_running(pod)
    return " ready." in pod.read_log()


def page_answers(process: Process, address: str) -> bool:
    """Whether the page can be had. StartError when the process that serves it ended."""
    check_running(process)
    try:
        with urllib.request.urlopen(address, timeout=2.0) as answer:  # noqa: S310 - our own http address
            return answer.status == 200  # noqa: PLR2004 - OK
    except (urllib.error.URLError, OSError):
        return False


def wait_ready(pods: Iterable[Process], timeout_s: float = START_S) -> None:
    """Wait until every worker consumes.

    Raises:
        StartError: one ended; with its last lines.
        WaitError: one was not ready in time; the message names all such.
    """
    waiting = list(pods)

    def all_ready() -> bool:
        waiting[:] = [pod for pod in waiting if not is_ready(pod)]
        return not waiting

    wait_until(all_ready, timeout_s, what=lambda: f"{_names(waiting)} to be ready", every_s=0.05)


def check_running(process: Process) -> None:
    """StartError, with the last lines of its log, when the process has ended."""
    if process.running:
        return
    last = [line for line in process.read_log().splitlines() if line.strip()][-5:]
    raise StartError(f"{process.name} ended with code {process.exit_code}: " + " / ".join(last))


def _celery(placement: Placement) -> list[str]:
    return [sys.executable, "-m", "celery", "-A", placement.app]


def _names(processes: Iterable[Process]) -> str:
    return ", ".join(process.name for process in processes)
