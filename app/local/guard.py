"""Starts processes that cannot outlive the one that started them.

A demonstration that is interrupted, a test run that is killed, a crash: none of them may leave a
worker or a server behind on somebody's machine. Every local process is therefore started through a
:class:`Guard`, in a process group of its own, and registered with a watcher process (``watcher.py``)
that ends it when this process is gone, however it went. The registration is written by the new
process itself before it becomes what it shall be, so there is no instant in which it is unknown.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WATCHER = Path(__file__).with_name("watcher.py")
# Its standard input is the pipe to the watcher until it has written its own number there.
REGISTER = 'echo "+ $$" >&0; exec "$@" </dev/null'


class Process:
    """One started process with its whole group: the worker and the children of its pool."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], log: Path, log_from: int = 0) -> None:
        """Take over a process that leads its own group; ``log`` receives its output.

        An earlier process of the same name may have written to the log: this one's output begins at
        the byte ``log_from``.
        """
        self.name = name
        self.log = log
        self._popen = popen
        self._log_from = log_from
        self._asked = False

    @property
    def pid(self) -> int:
        """Number of the process, and of its group."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._popen.poll()

    @property
    def running(self) -> bool:
        """True until the process itself has ended (also while it is paused)."""
        return self._popen.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to every process of the group; one that is gone is no error."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def pause(self) -> None:
        """Freeze the whole group (SIGSTOP), as a stalled machine would."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen group go on (SIGCONT)."""
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """End the whole group by SIGKILL, as the kernel's memory killer would, and collect it."""
        self.send(signal.SIGKILL)
        self._popen.wait()

    def terminate(self) -> None:
        """Ask the process itself to end (SIGTERM), as Kubernetes does; its children are its own."""
        self._popen.terminate()

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the end and return the exit code; subprocess.TimeoutExpired when time runs out."""
        return self._popen.wait(timeout_s)

    def read_log(self) -> str:
        """Everything the process has printed so far."""
        with self.log.open("rb") as log:
            log.seek(self._log_from)
            return log.read().decode(errors="replace")

    def ask_to_end(self) -> None:
        """Send SIGTERM, once: to a worker a second one means to drop what it does. A frozen one is woken."""
        if self.running and not self._asked:
            self._asked = True
            self.resume()
            self.terminate()

    def end(self, patience_s: float = 5.0) -> None:
        """SIGTERM, and SIGKILL for whatever of the group is left after ``patience_s`` seconds."""
        if self.running and patience_s > 0:
            self.ask_to_end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(patience_s)
        self.kill()


class Guard:
    """Owner of processes and temporary folders; a context manager that ends them all.

    A crash of this process at any point leaves nothing: the watcher ends the groups and removes the
    folders. Starting costs one small process for the watcher, once.
    """

    def __init__(self) -> None:
        """Start the watcher."""
        self.processes: list[Process] = []
        self._folders: list[Path] = []
        self._lock = threading.Lock()
        reading, self._orders = os.pipe()
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", str(WATCHER)],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reading)

    def __enter__(self) -> Self:
        """Return the guard itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self.close()

    def folder(self, purpose: str) -> Path:
        """Make a temporary folder that is removed at the end (its path is short: sockets fit)."""
        path = Path(tempfile.mkdtemp(prefix=f"headroom-{purpose}-"))
        self._folders.append(path)
        self._order(f"folder {path}")
        return path

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Process:
        """Start ``command`` in its own group and return at once, without waiting for readiness.

        Args:
            name: for messages.
            command: program and arguments; no shell looks at them.
            log: file that receives standard output and error (appended).
            env: the whole environment; None passes this process's own on.
            cwd: folder to start in; None is the current one.

        Raises:
            FileNotFoundError: ``cwd`` or the folder of ``log`` does not exist. A program that does
                not exist shows as exit code 127, with the reason in the log.
        """
        with log.open("ab") as output:
            log_from = output.tell()
            popen = subprocess.Popen(
                ["/bin/sh", "-c", REGISTER, name, *command],
                stdin=self._orders,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(env) if env is not None else None,
                cwd=cwd,
            )
        process = Process(name, popen, log, log_from)
        with self._lock:
            self.processes.append(process)
        return process

    def end(self, process: Process, patience_s: float = 5.0) -> None:
        """End one process and forget it."""
        process.end(patience_s)
        self._order(f"- {process.pid}")
        with self._lock, contextlib.suppress(ValueError):
            self.processes.remove(process)

    def close(self, patience_s: float = 5.0) -> None:
        """End all processes, asked together, within ``patience_s`` seconds; then remove the folders.

        A server is asked only when all that may still talk to it have ended: they were started later.
        """
        with self._lock:
            processes = self.processes[::-1]
        deadline_s = time.monotonic() + patience_s
        for process in processes[:-1]:
            process.ask_to_end()
        for process in processes:
            self.end(process, max(0.1, deadline_s - time.monotonic()))
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        self._folders.clear()
        with self._lock:
            if self._orders >= 0:
                os.close(self._orders)
                self._orders = -1
        self._watcher.wait()

    def _order(self, line: str) -> None:
        """Tell the watcher; one write per line, so that lines of several writers do not mix."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            if self._orders >= 0:
                os.write(self._orders, f"{line}\n".encode())
