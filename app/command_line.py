"""The application's command line: ``./run demo`` and ``./run up``, or ``python -m app`` in their place.

``python -m app drain`` is what a preStop hook runs in a worker's container (`throttle.commands.drain`); it imports
neither Celery nor what only the local fleet needs.

=====  ===========================================================================================
code   means
=====  ===========================================================================================
0      it was shown or done, or was so already; `drain --wait`: the worker is dry
1      it was refused, a promise was broken, the fleet could not be started, or a package is missing
2      it was asked wrongly: an argument or a setting is not allowed, or no bot is configured
3      `drain`: the deadline is over, and tasks are left over; they are named
4      `drain`: the worker was not reached
69     Redis, or the store of checkpoints, cannot be used (`EX_UNAVAILABLE`)
130    it was interrupted, which is how `up` and a `--watch` end
=====  ===========================================================================================

Each that is not 0 comes with one line on standard error. With `--json` standard output has one JSON document and
nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from app.settings import called_as
from throttle.commands.drain import drain
from throttle.commands.lines import AskedWrongly
from throttle.errors import ConfigurationError, HeadroomError, RedisUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console
    from rich.table import Table

BROKEN, ASKED_WRONGLY, INTERRUPTED = 1, 2, 130
FLEET = {"tasks": 200, "pods": 5, "seconds": 0.3}
"""What the demonstration of a fleet does when nobody asks otherwise."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong with an argument in one line."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(ASKED_WRONGLY, f"{self.prog}: {message} (see {self.prog} --help)\n")


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
    shown.add_argument("scene", nargs="?", choices=("fleet", "shards"), default="fleet", help="what is shown (fleet)")
    shown.add_argument("--tasks", type=whole(1, 100_000), help="fleet: size of the flood (200)")
    shown.add_argument("--pods", type=whole(1, 50), help="fleet: worker pods (5)")
    shown.add_argument("--seconds", type=duration, help="fleet: length of a task (0.3)")
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
    if parsed.command == "demo":
        _settle_fleet(parser, parsed)
    return parsed


def _settle_fleet(parser: Parser, parsed: argparse.Namespace) -> None:
    """Fill in the fleet that was not asked for; the scene of shards has none, and ignores nothing in silence."""
    for name, default in FLEET.items():
        if getattr(parsed, name) is None:
            setattr(parsed, name, default)
        elif parsed.scene == "shards":
            parser.prog += " demo"
            parser.error(f"argument --{name}: not allowed with shards, which takes --json alone")


def run_demo(arguments: argparse.Namespace) -> int:
    """Play the demonstration and print its bill."""
    from rich.console import Console  # noqa: PLC0415 - the image has none of this

    from app.local import demo  # noqa: PLC0415
    from app.local.board import Board, Scene  # noqa: PLC0415

    console = Console(stderr=arguments.json)
    if arguments.scene == "shards":
        return run_shards_demo(console, as_json=arguments.json)
    scene = Scene(f"Headroom: {arguments.tasks} tasks on {arguments.pods} pods")
    with Board(console, scene) as board:
        outcome = demo.play(board, tasks=arguments.tasks, pods=arguments.pods, seconds=arguments.seconds)
    return settle(console, outcome.as_json(), as_json=arguments.json)


def run_shards_demo(console: Console, *, as_json: bool) -> int:
    """Play the demonstration of a Discord bot's shards and print its bill."""
    from app.local.shards import board, demo  # noqa: PLC0415 - the image has none of this

    with board.BotBoard(console, board.BotScene("Headroom: a bot's shards on three pods")) as shown:
        outcome = demo.play(shown)
    return settle(console, outcome.as_json(), as_json=as_json)


def settle(console: Console, figures: dict[str, Any], *, as_json: bool) -> int:
    """Print the bill of a demonstration, and the verdict under it; its exit code."""
    verdict = "broken: " + "; ".join(figures["broken"]) if figures["broken"] else "every promise was kept"
    console.print(bill(figures))
    console.print(verdict, style="italic", highlight=False, markup=False, soft_wrap=True)
    if as_json:
        sys.stdout.write(json.dumps(figures) + "\n")
    return BROKEN if figures["broken"] else 0


def bill(figures: dict[str, Any]) -> Table:
    """The outcome as a table."""
    from rich.table import Table  # noqa: PLC0415 - the image has none

    shown = {name: value for name, value in figures.items() if name != "broken"}
    if "critical_ms" in shown:
        shown["critical_ms"] = ", ".join(f"{ms:.0f}" for ms in shown["critical_ms"])
    table = Table(title="What happened", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in shown.items():
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
        sys.stderr.write(f"headroom: the store of checkpoints does not answer (CHECKPOINT_STORE, REDIS_URL): {error}\n")
        return os.EX_UNAVAILABLE
    return 0


def run_drain(arguments: Sequence[str]) -> int:
    """Drain the worker in this container; the exit code tells."""
    try:
        return drain.main(list(arguments), prog_name=f"{called_as()} drain", standalone_mode=False) or 0
    except AskedWrongly as error:
        error.show()
        return ASKED_WRONGLY
    except click.Abort:
        return INTERRUPTED


def run_shards(arguments: argparse.Namespace) -> int:
    """Show a bot's shards, or do something to them."""
    from app.shards import commands  # noqa: PLC0415 - likewise

    return commands.run(arguments)


def locally(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """A command that starts a fleet on this machine, with the errors that only such a one has."""

    def checked(arguments: argparse.Namespace) -> int:
        from app.local.processes import StartError  # noqa: PLC0415 - the image has none of this
        from app.local.servers import ServerError  # noqa: PLC0415
        from app.local.waiting import WaitError  # noqa: PLC0415

        try:
            return run(arguments)
        except (ServerError, StartError, WaitError) as error:
            return _say(error, BROKEN)

    return checked


COMMANDS = {
    "demo": locally(run_demo),
    "up": locally(run_up),
    "checkpoints": run_checkpoints,
    "shards": run_shards,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every failure that a person can mend is one line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["drain"]:
        return run_drain(arguments[1:])
    parsed = parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return COMMANDS[parsed.command](parsed)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; everything that was started is ended\n")
        return INTERRUPTED
    except ConfigurationError as error:
        return _say(error, ASKED_WRONGLY)
    except RedisUnusable as error:
        return _say(error, os.EX_UNAVAILABLE)
    except HeadroomError as error:
        return _say(error, BROKEN)


def _say(error: Exception, code: int) -> int:
    sys.stderr.write(f"headroom: {error}\n")
    return code


def _interrupt(*_: object) -> None:
    """Treat SIGTERM as Ctrl-C: the blocks that hold the fleet are left in order."""
    raise KeyboardInterrupt
