"""The application's command line: ``./run demo`` and ``./run up``, or ``python -m app`` in their place.

``python -m app drain`` is what a preStop hook runs in a worker's container (`throttle.commands.drain`); it imports
neither Celery nor what only the local fleet needs.

Exit codes: 0 all is well, 1 a promise was broken or the fleet could not be started, 2 an argument is
wrong, 130 interrupted; `drain`: 0 dry, 3 left over, 4 the worker was not reached; `shards`: see `app.shards.commands`.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from app.settings import called_as
from throttle.commands.drain import drain
from throttle.errors import HeadroomError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from app.local import demo

INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """Says what is wrong with an argument in one line."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def whole(low: int, high: int) -> Callable[[str], int]:
    """An argument that is a whole number in a range."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a whole number from {low} to {high}")
        return value

    return read


def duration(text: str) -> float:
    """An argument that is a number of seconds from 0 to 60."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 60:  # noqa: PLR2004 - said in the message
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a number of seconds from 0 to 60")
    return value


def folder(text: str) -> Path:
    """An argument that is an existing folder."""
    path = Path(text).resolve()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder")
    return path


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; exit code 2 and one line when it is wrong."""
    parser = Parser(prog=called_as(), description="Headroom's application.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    shown = commands.add_parser("demo", help="a fleet at work: a pod is killed, nothing is lost")
    shown.add_argument("--tasks", type=whole(1, 100_000), default=200, help="size of the flood (200)")
    shown.add_argument("--pods", type=whole(1, 50), default=5, help="worker pods (5)")
    shown.add_argument("--seconds", type=duration, default=0.3, help="length of a task (0.3)")
    shown.add_argument("--json", action="store_true", help="print one JSON object, and all else to stderr")
    commands.add_parser("drain", help="drain the worker of this pod, for a preStop hook (has a --help of its own)")
    local = commands.add_parser("up", help="a local fleet until Ctrl-C")
    local.add_argument("--pods", type=whole(1, 50), default=5, help="worker pods (5)")
    local.add_argument("--folder", type=folder, help="folder whose files the jobs may use (a new one)")
    kept = commands.add_parser("checkpoints", help="the tasks that can go on where they were, and how far they are")
    kept.add_argument("--json", action="store_true", help="print one JSON array")
    from app.shards import commands as shards  # noqa: PLC0415 - `drain` needs none of it

    shards.add(commands, whole)
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:  # argparse would name the program alone, whose --help does not show the command's options
        parser.prog += f" {parsed.command}"
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return parsed


def run_demo(arguments: argparse.Namespace) -> int:
    """Play the demonstration and print its bill."""
    from rich.console import Console  # noqa: PLC0415 - the image has none of this

    from app.local import demo  # noqa: PLC0415
    from app.local.board import Board, Scene  # noqa: PLC0415

    console = Console(stderr=arguments.json)
    scene = Scene(f"Headroom: {arguments.tasks} tasks on {arguments.pods} pods")
    with Board(console, scene) as board:
        outcome = demo.play(board, tasks=arguments.tasks, pods=arguments.pods, seconds=arguments.seconds)
    console.print(bill(outcome))
    if arguments.json:
        sys.stdout.write(json.dumps(outcome.as_json()) + "\n")
    return 1 if outcome.broken else 0


def bill(outcome: demo.Outcome) -> Table:
    """The outcome as a table, and the verdict under it."""
    from rich.table import Table  # noqa: PLC0415 - the image has none

    figures = outcome.as_json()
    figures["critical_ms"] = ", ".join(f"{ms:.0f}" for ms in figures["critical_ms"])
    verdict = "broken: " + "; ".join(figures.pop("broken")) if outcome.broken else "every promise was kept"
    figures.pop("broken", None)
    table = Table(title="What happened", caption=verdict, title_justify="left", caption_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), str(value))
    return table


def run_up(arguments: argparse.Namespace) -> int:
    """Run a local fleet until it is interrupted."""
    from rich.console import Console  # noqa: PLC0415 - the image has none of this

    from app.local import up  # noqa: PLC0415
    from app.local.board import Board, Scene  # noqa: PLC0415

    console = Console()
    with Board(console, Scene(f"Headroom: {arguments.pods} pods")) as board:
        up.run(board, console, pods=arguments.pods, folder=arguments.folder, settings={"THROTTLE_TTL": "6"})
    return 0


def run_checkpoints(arguments: argparse.Namespace) -> int:
    """Print what resumable tasks have saved."""
    from app import checkpoints  # noqa: PLC0415 - likewise
    from tasks.checkpoints import StoreAway  # noqa: PLC0415

    try:
        checkpoints.show(as_json=arguments.json)
    except StoreAway as error:
        raise StoreAway(f"the store of checkpoints does not answer (CHECKPOINT_STORE, REDIS_URL): {error}") from error
    return 0


def run_drain(arguments: Sequence[str]) -> int:
    """Drain the worker in this container; the exit code tells."""
    try:
        return drain.main(list(arguments), prog_name=f"{called_as()} drain", standalone_mode=False) or 0
    except click.UsageError as error:
        sys.stderr.write(f"{called_as()} drain: {error.format_message()} (see {called_as()} drain --help)\n")
        return 2
    except click.Abort:
        return INTERRUPTED


def run_shards(arguments: argparse.Namespace) -> int:
    """Show a bot's shards, or do something to them."""
    from app.shards import commands  # noqa: PLC0415 - likewise

    return commands.run(arguments)


COMMANDS = {"demo": run_demo, "up": run_up, "checkpoints": run_checkpoints, "shards": run_shards}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every failure that a person can mend is one line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["drain"]:
        return run_drain(arguments[1:])
    parsed = parse(arguments)
    from app.local.processes import StartError  # noqa: PLC0415 - as above
    from app.local.servers import ServerError  # noqa: PLC0415
    from app.local.waiting import WaitError  # noqa: PLC0415

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return COMMANDS[parsed.command](parsed)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; everything that was started is ended\n")
        return INTERRUPTED
    except (ServerError, StartError, WaitError, HeadroomError) as error:
        sys.stderr.write(f"headroom: {error}\n")
        return 1


def _interrupt(*_: object) -> None:
    """Treat SIGTERM as Ctrl-C: the blocks that hold the fleet are left in order."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
