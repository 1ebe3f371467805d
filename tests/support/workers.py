"""Fixtures: real worker processes of the application, or of any other Celery app, on a real server."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from app.local.processes import ROOT, Placement, start_pod, wait_ready
from app.local.recorder import RUNS_KEY
from app.local.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from app.local.guard import Guard, Process
    from tests.support.servers import Client

QUICK_TTL = {"THROTTLE_TTL": "3", "PULSE_EVERY": "0"}


class Workers:
    """Starts pods, and knows what their tasks recorded (see ``app.local.recorder``)."""

    def __init__(self, guard: Guard, client: Client, folder: Path) -> None:
        """Pods work on ``client``'s server, with a TTL of 3 s and ``folder`` as their jobs folder."""
        self.client = client
        self.folder = folder
        settings = {**QUICK_TTL, "JOBS_FOLDER": str(folder)}
        self.placement = Placement(client.url, folder, settings)
        self.pods: list[Process] = []
        self._guard = guard
        self._numbers = itertools.count(1)

    def start(
        self,
        count: int = 1,
        *,
        names: Sequence[str] = (),
        pool: str = "prefork",
        concurrency: int = 1,
        arguments: Sequence[str] = (),
        app: str = "app.celery",
        ready: bool = True,
        **settings: str,
    ) -> list[Process]:
        """Start pods side by side and wait until they consume (unless ``ready`` is false).

        Args:
            count: how many, named ``pod-1``, ``pod-2``, ... over the whole test.
            names: their names instead.
            pool: as for ``celery worker``.
            concurrency: as for ``celery worker``.
            arguments: further arguments of ``celery worker``.
            app: another application than this project's; its module may stand in ``self.folder``.
            ready: wait for them.
            settings: environment variables.
        """
        placement = replace(self.placement, app=app, settings={**self.placement.settings, **settings})
        names = names or [f"pod-{next(self._numbers)}" for _ in range(count)]
        started = [
            start_pod(self._guard, placement, name, pool=pool, concurrency=concurrency, arguments=arguments)
            for name in names
        ]
        self.pods += started
        if ready:
            wait_ready(started)
        return started

    def records(self) -> list[dict[str, Any]]:
        """Every start and end of a task so far, in the order in which Redis received them."""
        raw = cast("list[bytes]", self.client.lrange(RUNS_KEY, 0, -1))
        return [json.loads(record) for record in raw]

    def done(self) -> list[str]:
        """Ids of the tasks that ended in SUCCESS, one for each time that they did."""
        return [r["task"] for r in self.records() if r["what"] == "end" and r["state"] == "SUCCESS"]

    def wait_done(self, count: int, timeout_s: float = 20.0) -> list[str]:
        """Wait until tasks have succeeded ``count`` times."""
        wait_until(
            lambda: len(self.done()) >= count,
            timeout_s,
            what=lambda: f"{count} tasks done, {len(self.done())} are; logs:\n{self.logs()}",
        )
        return self.done()

    def logs(self) -> str:
        """The last lines of every pod's log."""
        return "\n".join(f"--- {pod.name}\n{pod.read_log()[-3000:]}" for pod in self.pods)

    def python(self, program: str, **settings: str) -> str:
        """Run a Python program as a process of its own with the fleet's settings; returns its output."""
        environment = {**os.environ, **self.placement.environment(**settings)}
        answer = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def end(self) -> None:
        """Kill what still runs."""
        for pod in self.pods:
            self._guard.end(pod, patience_s=0)


@pytest.fixture
def workers(guard: Guard, valkey: Client, tmp_path: Path) -> Iterator[Workers]:
    """Pods on an empty Valkey."""
    group = Workers(guard, valkey, tmp_path)
    yield group
    group.end()


@pytest.fixture
def workers_on_each(guard: Guard, server: Client, tmp_path: Path) -> Iterator[Workers]:
    """Pods on an empty server, once for each kind of server."""
    group = Workers(guard, server, tmp_path)
    yield group
    group.end()
