"""Puts a local fleet on its feet: server, pods, beat and Flower, side by side, with visible progress.

The demonstration, ``up`` and whoever else needs a whole fleet begin here, so that they all begin the
same way and end the same way: nothing of it outlives the block, however the block is left.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from app.local.board import PodRow
from app.local.guard import Guard
from app.local.observe import Observer
from app.local.processes import (
    START_S,
    Placement,
    is_ready,
    page_answers,
    start_beat,
    start_flower,
    start_pods,
)
from app.local.servers import Kind, Server
from app.local.waiting import wait_until
from throttle.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from app.local.board import Board
    from app.local.guard import Process

QUEUES = ("task_queue", "critical")


class Stage:
    """One local fleet; a context manager."""

    def __init__(
        self,
        *,
        pods: int,
        settings: Mapping[str, str],
        jobs: Path | None = None,
        kind: Kind = "valkey",
    ) -> None:
        """Nothing is started before :meth:`start`.

        Args:
            pods: how many workers.
            settings: environment variables of the fleet (``THROTTLE_*`` and the application's).
            jobs: the jobs folder; None makes one that ends with the fleet.
            kind: of the server.
        """
        self.guard = Guard()
        self.folder = self.guard.folder("fleet")
        self.jobs = jobs or self.folder / "jobs"
        self.jobs.mkdir(exist_ok=True)
        self.pods: dict[str, Process] = {}
        self.flower_address = ""
        self._count = pods
        self._settings = {**settings, "JOBS_FOLDER": str(self.jobs), "TASK_QUEUE": QUEUES[0]}
        self._settings["CRITICAL_QUEUE"] = QUEUES[1]
        self._server = Server(self.guard, kind)

    def __enter__(self) -> Self:
        """Return the stage itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End every process and remove the folder."""
        self.guard.close()

    @property
    def redis_url(self) -> str:
        """Address of the fleet's server."""
        return self._server.url

    def start(self, board: Board) -> Observer:
        """Start everything and wait until all of it is there; returns who looks at it.

        This process takes over the fleet's environment: what it publishes then is published as a
        service beside the pods would do it.

        Raises:
            ServerError, StartError, WaitError: with one line that says what did not come.
        """
        self._server.start()
        board.event(f"{self._server.kind} answers on port {self._server.port}")
        placement = Placement(self._server.url, self.folder, self._settings)
        processes = start_pods(self.guard, placement, self._count)
        self.pods = {process.name: process for process in processes}
        beat = start_beat(self.guard, placement)
        flower, address = start_flower(self.guard, placement)
        os.environ.clear()
        os.environ.update(placement.environment(POD_NAME="producer"))
        observer = self._observer()
        rows = {name: PodRow(name) for name in self.pods}
        board.scene.pods = list(rows.values())
        missing = {"beat": lambda: "Starting..." in beat.read_log(), "Flower": lambda: page_answers(flower, address)}

        def all_there() -> bool:
            for name, row in rows.items():
                if row.state == "starting" and is_ready(self.pods[name]):
                    row.state = "free"
                    board.event(f"{name} is ready")
            for name in [name for name, there in missing.items() if there()]:
                del missing[name]
                board.event(f"{name} is ready")
            ready = sum(row.state == "free" for row in rows.values())
            board.scene.note = f"starting: {ready} of {self._count} pods ready" + "".join(
                f", {name} not yet" for name in missing
            )
            board.refresh()
            return ready == self._count and not missing

        wait_until(all_there, START_S, what=lambda: board.scene.note, every_s=0.05)
        wait_until(
            lambda: observer.look().counts.alive == self._count, what=f"{self._count} pods to be counted as alive"
        )
        board.scene.note = ""
        self.flower_address = board.scene.flower = address
        return observer

    def _observer(self) -> Observer:
        settings = load_settings()
        return Observer(self._server.client(), fleet=settings.fleet, rule=settings.rule(), queues=QUEUES)


def update(board: Board, observer: Observer, pods: Mapping[str, Process], killed: set[str]) -> None:
    """Bring the board up to date from what can be seen in Redis now."""
    scene = board.scene
    scene.view = view = observer.look()
    progress = observer.progress
    for row in scene.pods:
        row.done = progress.done_by_pod[row.name]
        start = progress.running.get(row.name)
        gone = row.name in killed or not pods[row.name].running
        if gone:
            row.state = "killed" if row.name in killed else "gone"
        elif row.name not in view.held:
            row.state = "silent"
        else:
            row.state = "busy" if view.held[row.name] else "free"
        row.critical = start is not None and start["queue"] == QUEUES[1]
        row.running = "" if start is None or gone else f"{start['name'].rpartition('.')[2]} {start['task'][:8]}"
    board.refresh()
