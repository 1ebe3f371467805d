"""Pods whose probes are asked, again and again, while something befalls them."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from app.local.servers import free_port
from app.local.waiting import wait_until

if TYPE_CHECKING:
    from app.local.guard import Process
    from tests.support.workers import Workers

STALLS = {"READY_STALL_S": "4", "HEALTH_STALL_S": "8"}
"""So long may a loop stand in these tests."""
PROBES = ("/startup", "/ready", "/health")


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    took_s: float

    @property
    def told(self) -> dict[str, Any]:
        """The body, where it is JSON."""
        return json.loads(self.body)


def ask(port: int, path: str, **headers: str) -> Answer:
    """GET a path. Status 0 when nobody answers."""
    asked_s = time.perf_counter()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own http address
            return Answer(answer.status, answer.read(), time.perf_counter() - asked_s)
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read(), time.perf_counter() - asked_s)
    except OSError as error:
        return Answer(0, str(error).encode(), time.perf_counter() - asked_s)


class Probed:
    """One pod, and the port of its probes."""

    def __init__(self, process: Process, port: int) -> None:
        """Ask on this port."""
        self.process = process
        self.port = port

    @classmethod
    def start(cls, workers: Workers, name: str, **options: Any) -> Self:
        """Start a pod and wait until it is ready."""
        port = free_port()
        settings: dict[str, Any] = {**STALLS, **options, "PROBE_PORT": str(port)}
        (process,) = workers.start(names=[name], **settings)
        pod = cls(process, port)
        if settings.get("ready", True):
            pod.wait("/ready", 200)
        return pod

    def ask(self, path: str, **headers: str) -> Answer:
        """GET a path."""
        return ask(self.port, path, **headers)

    def wait(self, path: str, status: int, timeout_s: float = 20.0, state: str = "") -> Answer:
        """Wait until a probe answers so, and for this reason."""

        def answered() -> Answer | None:
            answer = self.ask(path)
            fits = answer.status == status and (not state or answer.told["state"] == state)
            return answer if fits else None

        def what() -> str:
            log = self.process.read_log()[-3000:]
            return f"{self.process.name}: {path} to answer {status} {state}; it says {self.ask(path)}; log:\n{log}"

        found = wait_until(answered, timeout_s, what=what, every_s=0.1)
        assert found is not None
        return found

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the series of a name that have these labels."""
        total = 0.0
        for line in self.ask("/metrics").body.decode().splitlines():
            series, _, value = line.rpartition(" ")
            found, _, told = series.partition("{")
            if found == name and all(f'{label}="{text}"' in told for label, text in labels.items()):
                total += float(value)
        return total


class Watching:
    """Asks the probes of pods all the while, and remembers every state that they told."""

    def __init__(self, *pods: Probed) -> None:
        """Begin at `with`."""
        self._pods = pods
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(pod,)) for pod in pods]
        self.told: dict[tuple[str, str], set[str]] = {(p.process.name, path): set() for p in pods for path in PROBES}

    def __enter__(self) -> Self:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ask no more."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def states(self, path: str) -> dict[str, set[str]]:
        """By pod, what this probe has told so far."""
        return {name: told for (name, asked), told in self.told.items() if asked == path}

    def _watch(self, pod: Probed) -> None:
        while not self._over.wait(0.1):
            for path in PROBES:
                answer = pod.ask(path)
                state = answer.told["state"] if answer.status else "no answer"
                self.told[pod.process.name, path].add(state)
