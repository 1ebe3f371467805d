"""Commands and groups that say in one line what is wrong with how they were called, and what is allowed.

click's own words are four lines with the usage first, and name the type (`is not a valid float range`) in place of what
is allowed.
"""

from __future__ import annotations

import math
from typing import IO, Any

import click
from click.exceptions import NoArgsIsHelpError

LONGEST_S = 86400


class AskedWrongly(click.UsageError):
    """A command was called wrongly; exit code 2, one line."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line, to standard error unless told otherwise."""
        called = self.ctx.command_path if self.ctx is not None else ""
        click.echo(f"{called}: {self.format_message()} (see {called} --help)", file=file, err=file is None)


class OneLine(click.Command):
    """A command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        try:
            return super().parse_args(ctx, args)
        except NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise AskedWrongly(_in_our_words(error), ctx) from None


class OneLineGroup(OneLine, click.Group):
    """A group of commands, which are of the same kind."""

    command_class = OneLine

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            allowed = ", ".join(self.list_commands(ctx))
            raise AskedWrongly(f"there is no command {args[0]!r}: allowed are {allowed}", ctx) from None


def _in_our_words(error: click.UsageError) -> str:
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter) and error.param:
        return f"argument {error.param.opts[-1]}: {error.message}"
    message = " ".join(error.format_message().split())
    return message[:1].lower() + message[1:].removesuffix(".")


class Seconds(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - older ones have none
    """A number of seconds from 0 to a day."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= LONGEST_S:
            self.fail(f"{value!r} is not allowed: a number of seconds from 0 to {LONGEST_S}", param, ctx)
        return seconds
