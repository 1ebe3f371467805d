"""`celery -A yours throttle ...`: what a person asks of a fleet and does to it, for any app that called `install`.

Celery finds the command by the entry point `celery.commands` of the package and loads it whenever `celery` starts, so
this imports nothing that Celery's own command line has not imported already.

=====  ===========================================================================================
code   means
=====  ===========================================================================================
0      all that was asked was done
1      some of it was not, with one line on standard error for each; the rest was
2      it was asked wrongly, or the app has no brake: nothing was done
69     Redis cannot be used (`EX_UNAVAILABLE`, as Celery's own commands end then); see the line
=====  ===========================================================================================

`drain` is asked in the worker's own container, and has exit codes of its own; see there.

With `--json` standard output has one JSON document and nothing else.
"""

from __future__ import annotations

import click

from throttle.commands.drain import drain
from throttle.commands.letters import dead
from throttle.commands.lines import OneLineGroup
from throttle.commands.schedule import schedule
from throttle.commands.status import status

__all__ = ["command"]


@click.group("throttle", cls=OneLineGroup, no_args_is_help=True)
def command() -> None:
    """Look at a fleet that throttle.install made, at its schedule and at its dead letters; drain a worker of it."""


command.add_command(dead)
command.add_command(drain)
command.add_command(schedule)
command.add_command(status)
