"""A local fleet until Ctrl-C, for a person's own tasks and files."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING

from app.local.processes import ROOT
from app.local.stage import Stage, update

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.console import Console

    from app.local.board import Board
    from app.local.observe import Observer

LOOK_EVERY_S = 0.2


def run(board: Board, console: Console, *, pods: int, folder: Path | None, settings: Mapping[str, str]) -> None:
    """Start a fleet, say how to send it work, and show it until it is interrupted.

    Args:
        board: shows the fleet.
        console: receives the instructions, above the board.
        pods: how many workers.
        folder: jobs folder; None makes one that ends with the fleet.
        settings: environment variables of the fleet.

    Raises:
        KeyboardInterrupt: when the person ends it; everything is ended by then.
        ServerError, StartError, WaitError: the fleet could not be started.
    """
    with Stage(pods=pods, settings=settings, jobs=folder) as stage:
        observer = stage.start(board)
        console.print(instructions(stage), highlight=False, markup=False, soft_wrap=True)
        watch(board, observer, stage)


def watch(board: Board, observer: Observer, stage: Stage) -> None:
    """Show the fleet, and tell of pods that end, for ever."""
    ended: set[str] = set()
    while True:
        for record in observer.read_records():
            critical = record["what"] == "start" and record["queue"] == "critical"
            if critical:
                board.event(f"critical task {record['task'][:8]} starts on {record['pod']}")
        for name, pod in stage.pods.items():
            if not pod.running and name not in ended:
                ended.add(name)
                board.event(f"{name} has ended with code {pod.exit_code}; its log: {pod.log}")
        board.scene.done = len(observer.progress.done)
        update(board, observer, stage.pods, killed=set())
        time.sleep(LOOK_EVERY_S)


def instructions(stage: Stage) -> str:
    """How to send work to this fleet, ready to be copied."""
    python = f"REDIS_URL={stage.redis_url} PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)}"
    imports = "import app.celery; from tasks.jobs.loads import sleep"
    plain = (
        f"{shlex.quote(sys.executable)} -c \"from celery import Celery; Celery(broker='{stage.redis_url}')"
        ".send_task('tasks.jobs.loads.sleep', (3,), queue='task_queue')\""
    )
    return f"""
The fleet is up. From another terminal:

  a task          {python} -c "{imports}; sleep.delay(3)"
  a critical one  {python} -c "{imports}; sleep.apply_async((3,), queue='critical')"
  from elsewhere  {plain}
  a file          put it into {stage.jobs}, then
                  {python} -c "import app.celery; from tasks.jobs.files import compress; compress.delay('NAME')"

  Flower          {stage.flower_address}
  logs            {stage.folder}
  end             Ctrl-C
"""
