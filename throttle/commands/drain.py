"""`throttle drain`: have the worker of this pod take nothing more and finish what runs; for a preStop hook.

It speaks with the worker in the same container (on the same machine) over its control address, and needs neither Redis
nor the app's code: what it must know is the fleet and the pod, from the app or the environment.

=====  ===========================================================================================
code   means
=====  ===========================================================================================
0      with --wait: the worker is dry, nothing is held; without: it drains
2      it was asked wrongly: nothing was done
3      the deadline is over, and tasks are left over; they are named
4      the worker was not reached
=====  ===========================================================================================
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from throttle.commands.lines import OneLine, Seconds
from throttle.commands.printing import in_one_line, print_json
from throttle.commands.reaching import ASKED_WRONGLY, complain
from throttle.control import ask, find
from throttle.errors import ConfigurationError, WorkerNotReached

if TYPE_CHECKING:
    from throttle.control import Control
    from throttle.settings import ThrottleSettings

LEFT_OVER = 3
NOT_REACHED = 4
LOOK_S = 0.2
NAMED = 5


@click.command("drain", cls=OneLine)
@click.option("--wait", is_flag=True, help="Wait until the worker is dry, or what is left over is known.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(),
    metavar="S",
    help="Seconds until running tasks are told to stop; 0: never. [default: THROTTLE_DRAIN_TIMEOUT]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def drain(context: click.Context, *, wait: bool, timeout_s: float | None, as_json: bool) -> None:
    """Drain the worker of this pod: it takes nothing more and finishes what runs. It stays up until it is signalled."""
    try:
        control = find(_settings(context))
        found = ask(control, {} if timeout_s is None else {"timeout": timeout_s})
        if wait:
            found = wait_for(control, found)
    except ConfigurationError as error:
        complain(str(error))
        raise click.exceptions.Exit(ASKED_WRONGLY) from None
    except WorkerNotReached as error:
        complain(str(error))
        if as_json:
            print_json({"state": "not reached", "reason": str(error)})
        raise click.exceptions.Exit(NOT_REACHED) from None
    if as_json:
        print_json(found)
    else:
        click.echo(in_words(found))
    if found["state"] == "left over":
        raise click.exceptions.Exit(LEFT_OVER)


def wait_for(control: Control, found: dict[str, Any]) -> dict[str, Any]:
    """Look until the drain is over, and tell of each change on standard error."""
    told = ""
    while found["state"] not in ("dry", "left over"):
        now = f"{found['state']} {found['held']} {[task['id'] for task in found['running']]}"
        if now != told:
            told = now
            click.echo(in_words(found), err=True)
        time.sleep(LOOK_S)
        found = ask(control)
    return found


def in_words(found: dict[str, Any]) -> str:
    """How a drain stands, in one line."""
    running = [f"{task['name']}[{task['id']}]" for task in found["running"]]
    shown = ", ".join(running[:NAMED]) + (f" and {len(running) - NAMED} more" if len(running) > NAMED else "")
    left = f", {found['deadline_s']:g} s left" if found["deadline_s"] is not None else ""
    runs = {
        "dry": "nothing is held, and the fleet is left",
        "left over": shown or f"{found['held']} acknowledgements that Redis has not answered",
    }.get(found["state"], f"{len(running)} running{': ' if shown else ''}{shown}{left}")
    return in_one_line(f"pod {found['pod']} {found['state']}: {runs}")


def _settings(context: click.Context) -> ThrottleSettings:
    """Of the app that `celery -A` names, else from the environment."""
    made = getattr(getattr(context.obj, "app", None), "throttle", None)
    if made is not None:
        return made.settings
    from throttle.settings import load_settings  # noqa: PLC0415 - only when the command runs

    return load_settings()
