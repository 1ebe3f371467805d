"""Fills the reference pages from the code while the site is built, so that they cannot be out of date.

A page says `<!-- reference: NAME -->` where a table belongs. What a table says stands in the code: the docstring under
a setting, the docstring of a key's function or of an error. A name that is not known, or a thing without a docstring,
stops the build.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from typing import TYPE_CHECKING, Any

import click
from pydantic import AliasChoices
from pydantic_settings import BaseSettings

import app.command_line
import app.settings
import tasks.shards.keys
import throttle.commands
import throttle.errors
import throttle.events
import throttle.keys
import throttle.settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

    from pydantic.fields import FieldInfo

MARKER = re.compile(r"^<!-- reference: (\S+) -->$", re.MULTILINE)


class IncompleteReferenceError(Exception):
    """A page asks for a table that nobody makes, or the code does not say what a table needs."""


def on_page_markdown(markdown: str, **_context: Any) -> str:
    """MkDocs calls this with each page's text; returns it with the tables in place."""
    return MARKER.sub(lambda match: table(match[1]), markdown)


def table(name: str) -> str:
    """The table called `name`, in Markdown. Raises `IncompleteReferenceError`."""
    if name not in TABLES:
        message = f"there is no table {name!r}; known: {', '.join(TABLES)}"
        raise IncompleteReferenceError(message)
    head, rows = TABLES[name]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows()]
    return "\n".join(lines)


def described(name: str, text: str | None) -> str:
    """A docstring as one line of Markdown."""
    if not text:
        message = f"{name} has no docstring"
        raise IncompleteReferenceError(message)
    return " ".join(inspect.cleandoc(text).split())


def docstrings_of_fields(model: type[BaseSettings]) -> dict[str, str]:
    """Field name -> the string under it in the class body. Python keeps none, so the source is read."""
    found: dict[str, str] = {}
    for base in model.__bases__:
        if issubclass(base, BaseSettings) and base is not BaseSettings:
            found |= docstrings_of_fields(base)
    body = next(node for node in ast.parse(inspect.getsource(model)).body if isinstance(node, ast.ClassDef)).body
    for field, below in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[field.target.id] = below.value.value
    return found


def variable_of(name: str, field: FieldInfo) -> str:
    """The environment variable of a field: its only alias, or the one in capitals."""
    alias = field.validation_alias
    names = [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [str(alias or name)]
    return next((choice for choice in names if choice.isupper()), names[0])


def settings_rows(model: type[BaseSettings], allowed: Callable[[str], str]) -> Iterator[tuple[str, ...]]:
    """One row for each setting: variable, default, what is allowed, what it does."""
    texts = docstrings_of_fields(model)
    for name, field in model.model_fields.items():
        variable = variable_of(name, field)
        default = f"`{field.default}`" if field.default not in {None, ""} else "none"
        permitted = re.sub(r"^allowed (is|are) ", "", allowed(name))
        yield f"`{variable}`", default, permitted, described(variable, texts.get(name))


def key_rows() -> Iterator[tuple[str, ...]]:
    """One row for each function of `Keys` that makes a key: the key as it looks, and what it holds."""
    keys = throttle.keys.Keys(fleet="<fleet>")
    for name, function in vars(throttle.keys.Keys).items():
        if inspect.isfunction(function) and not name.startswith("_") and name != "namespace":
            arguments = [f"<{argument}>" for argument in list(inspect.signature(function).parameters)[1:]]
            yield f"`{function(keys, *arguments)}`", described(f"Keys.{name}", function.__doc__)


def shard_key_rows() -> Iterator[tuple[str, ...]]:
    """One row for each key of a bot's cluster, from the table in the docstring of the module."""
    for line in (tasks.shards.keys.__doc__ or "").splitlines():
        cells = re.split(r"  +", line.strip(), maxsplit=2)
        if len(cells) == 3 and not line.startswith("=") and cells[0] != "suffix":  # noqa: PLR2004 - columns
            yield f"`{cells[0]}`", cells[1], cells[2]


def error_rows() -> Iterator[tuple[str, ...]]:
    """One row for each error, in the order of the module, with what it is a kind of."""
    for name, error in vars(throttle.errors).items():
        if isinstance(error, type) and issubclass(error, throttle.errors.HeadroomError):
            bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
            yield f"`{name}`", bases, described(name, error.__doc__)


def command_rows(command: click.Command = throttle.commands.command, before: str = "") -> Iterator[tuple[str, ...]]:
    """One row for each command: how it is called, what it does, and its options."""
    name = f"{before} {command.name}".strip()
    if isinstance(command, click.Group):
        for part in command.commands.values():
            yield from command_rows(part, name)
        return
    context = click.Context(command)
    arguments = [param.make_metavar(context) for param in command.params if isinstance(param, click.Argument)]
    options = [
        f"`{option.opts[-1]}{'' if option.is_flag else f' {option.metavar}'}` {described(option.opts[-1], option.help)}"
        for option in command.params
        if isinstance(option, click.Option)
    ]
    yield f"`{' '.join([name, *arguments])}`", described(name, command.help), "<br>".join(options)


def exit_code_rows(commands: ModuleType) -> Iterator[tuple[str, ...]]:
    """One row for each exit code, from the table in the docstring of the commands."""
    for line in (commands.__doc__ or "").splitlines():
        if found := re.match(r"(\d+) +(\S.*)", line):
            yield found[1], found[2]


def metric_rows(metrics: Iterable[throttle.events.Metric]) -> Iterator[tuple[str, ...]]:
    """One row for each metric."""
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        yield f"`{metric.name}`", metric.kind, labels, described(metric.name, metric.text)


def event_rows() -> Iterator[tuple[str, ...]]:
    """One row for each event, with the name that the library has for it."""
    names = {id(value): name for name, value in vars(throttle.events).items()}
    for event in throttle.events.EVENTS:
        fields = ", ".join(f"`{field}`" for field in event.fields) or "none"
        made = "<br>".join(f"`{metric.name}`" for metric in event.metrics)
        yield f"`{names[id(event)]}`", described(event.name, event.text), fields, made


METRIC = ("metric", "kind", "labels", "what it says")
SETTING = ("variable", "default", "allowed", "what it does")
TABLES: dict[str, tuple[tuple[str, ...], Callable[[], Iterator[tuple[str, ...]]]]] = {
    "settings-throttle": (
        SETTING,
        lambda: settings_rows(throttle.settings.ThrottleSettings, throttle.settings.allowed),
    ),
    "settings-app": (SETTING, lambda: settings_rows(app.settings.Settings, app.settings.ALLOWED.__getitem__)),
    "keys": (("key", "what it holds"), key_rows),
    "keys-shards": (("key", "TTL", "what it holds"), shard_key_rows),
    "commands": (("command", "what it does", "options"), command_rows),
    "exit-codes": (("exit code", "means"), lambda: exit_code_rows(throttle.commands)),
    "exit-codes-app": (("exit code", "means"), lambda: exit_code_rows(app.command_line)),
    "metrics-events": (
        METRIC,
        lambda: metric_rows(metric for event in throttle.events.EVENTS for metric in event.metrics),
    ),
    "metrics-pod": (METRIC, lambda: metric_rows(throttle.events.POD_READINGS)),
    "metrics-fleet": (METRIC, lambda: metric_rows(throttle.events.FLEET_READINGS)),
    "metrics-shards": (METRIC, lambda: metric_rows(throttle.events.SHARD_READINGS)),
    "metrics-bot": (METRIC, lambda: metric_rows(throttle.events.BOT_READINGS)),
    "events": (("event", "when", "fields", "metrics"), event_rows),
    "errors": (("error", "is a", "raised when"), error_rows),
}
