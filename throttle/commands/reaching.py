"""How a command reaches the fleet of the app that `celery -A` names, and how it says that it cannot."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click
import redis

from throttle.errors import ConfigurationError, HeadroomError

if TYPE_CHECKING:
    from collections.abc import Generator

    from throttle.scripts import Operations

UNDONE = 1
ASKED_WRONGLY = 2


class Reached(NamedTuple):
    """A fleet, and the app through which it was found."""

    app: Any
    operations: Operations


def complain(message: str) -> None:
    """One line on standard error."""
    click.echo(f"headroom: {message}", err=True)


def refuse(message: str, code: int) -> NoReturn:
    """End the command with one line and an exit code."""
    complain(message)
    raise click.exceptions.Exit(code)


@contextlib.contextmanager
def fleet(context: click.Context) -> Generator[Reached]:
    """The fleet of the app. Ends the command where there is none, and when Redis fails meanwhile.

    Redis is tried once: a person who waits is told at once.
    """
    app = context.obj.app
    made = getattr(app, "throttle", None)
    if made is None:
        named = context.find_root().params.get("app")
        message = (
            f"app {app.main!r} has no brake; allowed is one on which throttle.install(app) was called"
            if named
            else "no app was named; allowed is celery -A yours throttle ..., with an app that called throttle.install"
        )
        refuse(message, ASKED_WRONGLY)
    from throttle.worker.connecting import first_line, reach  # noqa: PLC0415 - only when a command runs

    try:
        operations = reach(app, made.settings.model_copy(update={"startup_s": 0.0}))
        yield Reached(app, operations)
    except ConfigurationError as error:
        refuse(str(error), ASKED_WRONGLY)
    except HeadroomError as error:
        refuse(str(error), os.EX_UNAVAILABLE)
    except (redis.RedisError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        refuse(f"Redis failed: {first_line(error)}", os.EX_UNAVAILABLE)
