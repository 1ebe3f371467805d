# pyright: basic
"""Names in an app's policies that mean nothing in it: a slip of the pen would switch a policy off without a word.

What is looked at when a worker starts, before it has joined:

======================================  ===============================================================================
queues of `TimeLimits` and `Retries`    a queue that this app has not is named in one line, with the nearest that it
                                        has. No error: other workers may consume what this one does not know
errors of `Retries`                     each is looked up, its module imported. One that cannot be found ends the start
errors that a task names as text        likewise, but for the end: a task may name an error of a package that is not
                                        everywhere. One line each
======================================  ===============================================================================

An error is known to its policy by its true name: `requests.ConnectionError` is `requests.exceptions.ConnectionError`.
"""

from __future__ import annotations

import builtins
import difflib
import importlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from throttle.errors import ConfigurationError
from throttle.policy import Retries, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

logger = logging.getLogger(__name__)

NEAR = 0.6
"""How alike two names must be, from 0 to 1, that one may be meant by the other."""
KINDS = ("temporary", "permanent")


def resolve(retries: Retries) -> Retries:
    """The same with each error by its true name. Imports the modules that they are in.

    Raises:
        ConfigurationError: one cannot be found, or is no error; one line, with the nearest that can.
    """
    found = {kind: tuple(_true_name(name, kind) for name in map(str, getattr(retries, kind))) for kind in KINDS}
    return replace(retries, temporary=found["temporary"], permanent=found["permanent"])


def _true_name(name: str, kind: str) -> str:
    try:
        return name_of(error_called(name))
    except LookupError as failure:
        message = f"{name!r} in Retries.{kind} (TASK_{kind.upper()}_ERRORS): {failure.args[0]}"
        raise ConfigurationError(message) from None


def error_called(name: str) -> type[BaseException]:
    """The class of errors that Python would find under this name, `TimeoutError` or `package.module.Error`.

    Raises:
        LookupError: there is none; says why.
    """
    parts = name.split(".")
    place: Any
    place, path, inside = (builtins, "", parts) if len(parts) == 1 else _module_of(parts)
    for number, part in enumerate(inside, 1):
        if not hasattr(place, part):
            raise LookupError(_no_such(part, place, path, last=number == len(inside)))
        place, path = getattr(place, part), f"{path}.{part}".lstrip(".")
    if not _is_error(place):
        message = "this is no class of errors"
        raise LookupError(message)
    return place


def _module_of(parts: list[str]) -> tuple[Any, str, list[str]]:
    """The innermost module that a name leads into, its name, and what remains. Raises `LookupError`."""
    for length in range(len(parts) - 1, 0, -1):
        path = ".".join(parts[:length])
        try:
            return importlib.import_module(path), path, parts[length:]
        except ModuleNotFoundError as error:
            if error.name and (path == error.name or path.startswith(f"{error.name}.")):
                continue  # it may be a class with a class inside
            message = f"importing {path} failed: {error}"
            raise LookupError(message) from None
        except Exception as error:  # noqa: BLE001 - whatever a module of others does when it is imported
            message = f"importing {path} failed: {' '.join(repr(error).split())}"
            raise LookupError(message) from None
    message = f"there is no module {parts[0]}"
    raise LookupError(message)


def _no_such(part: str, place: Any, path: str, *, last: bool) -> str:
    known = [name for name, value in vars(place).items() if not last or _is_error(value)]
    near = difflib.get_close_matches(part, known, n=1, cutoff=NEAR)
    where = f"{path or 'Python'} has no {part}"
    return f"{where}; the nearest is {path}{'.' if path else ''}{near[0]}" if near else where


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def doubts(app: Any) -> Iterator[str]:
    """One line for each queue that the app does not have, and each error of a task that cannot be found."""
    made = app.throttle
    queues = {*app.amqp.queues, *made.critical_queues}
    for policy, variable, named in (
        ("TimeLimits", "TASK_TIME_LIMITS", made.time_limits.queues),
        ("Retries", "TASK_RETRIES", made.retries.queues),
    ):
        for name in sorted(set(named) - queues):
            instead = _instead(app, name, queues)
            yield f"{policy}.queues ({variable}) names a queue {name!r}, and this app has none: {instead}"
    for task_name, task in sorted(app.tasks.items()):
        for kind in KINDS:
            for error in getattr(task, kind, ()):
                try:
                    error_called(error if isinstance(error, str) else "Exception")
                except LookupError as failure:
                    yield f"task {task_name} names {error!r} as {kind}, and no error is called so: {failure.args[0]}"


def _instead(app: Any, name: str, queues: Iterable[str]) -> str:
    if name in app.tasks:
        return "it is a task, which has its own options, @app.task(...)"
    near = difflib.get_close_matches(name, queues, n=1, cutoff=NEAR)
    return f"the nearest is {near[0]!r}" if near else f"it has {', '.join(sorted(queues))}"


def tell(app: Any) -> None:
    """Say it in the log, once a start."""
    for line in doubts(app):
        logger.warning("headroom: %s", line)
