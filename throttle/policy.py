"""How long a task may run, and how often one that failed is tried again: what an operator sets for a whole app.

Plain values, for `throttle.install`. Both have one entry for everything and one for each queue that differs. A task and
a message may say otherwise for themselves; who goes before whom stands in `throttle.worker.limits` and
`throttle.worker.attempts`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

from throttle.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Overrun: TypeAlias = Literal["warn", "exit"]
ErrorName: TypeAlias = "str | type[BaseException]"
Value = TypeVar("Value")

LONGEST_S = 31_536_000.0
MOST_RETRIES = 1000


class Limit(NamedTuple):
    """Seconds that a task may run; 0: no such limit."""

    soft_s: float = 0.0
    """Then `SoftTimeLimitExceeded` is raised in it, and it may end in its own way."""
    hard_s: float = 0.0
    """Then it is ended."""


class Backoff(NamedTuple):
    """How often a task that failed for a passing reason is tried again, and after what pause."""

    max_retries: int = 3
    backoff_s: float = 1.0
    """Before the first retry; doubled before each further one. With full jitter: anything from 0 to this."""
    backoff_max_s: float = 600.0
    """No pause is longer."""

    def pause_s(self, retries: int) -> float:
        """The longest pause before the next try, after so many retries."""
        return min(self.backoff_max_s, self.backoff_s * 2.0 ** min(retries, 64))


NO_LIMIT, THREE_TIMES = Limit(), Backoff()


@dataclass(frozen=True)
class TimeLimits:
    """Time limits of tasks that set none themselves."""

    default: Limit = NO_LIMIT
    queues: Mapping[str, Limit] = field(default_factory=dict[str, Limit])
    """By the name of the queue that a message was sent to; 0 there means none, whatever the default is."""
    overrun: Overrun = "warn"
    """On a pool that cannot end a task (threads, solo), what its pod does about one that is past its hard limit: say
    which it is, or also end in order, so that the message comes again elsewhere with one delivery counted."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant; raises `ConfigurationError`."""
        for name, limit in {"default": self.default, **self.queues}.items():
            if not all(0 <= value <= LONGEST_S for value in limit) or 0 < limit.hard_s <= limit.soft_s:
                message = f"time limit of {name}: {limit.soft_s:g}/{limit.hard_s:g}: {ALLOWED_LIMIT}"
                raise ConfigurationError(message)
        if self.overrun not in ("warn", "exit"):
            message = f"overrun={self.overrun!r}: allowed is warn or exit"
            raise ConfigurationError(message)

    def of(self, queue: str) -> Limit:
        """The limits of a queue."""
        return self.queues.get(queue, self.default)

    @property
    def any(self) -> bool:
        """Whether there is any limit at all."""
        return any(any(limit) for limit in (self.default, *self.queues.values()))


@dataclass(frozen=True)
class Retries:
    """Which errors of a task are tried again, how often, and which are given up at once.

    `throttle.errors.TemporaryError` and `PermanentError` always are what they say. Other errors fail a task as in plain
    Celery, unless they are named here or by their task.
    """

    default: Backoff = THREE_TIMES
    queues: Mapping[str, Backoff] = field(default_factory=dict[str, Backoff])
    """By the name of the queue that a message was sent to."""
    temporary: tuple[ErrorName, ...] = ()
    """Errors that pass: classes, or names such as `TimeoutError` and `requests.exceptions.ConnectionError`."""
    permanent: tuple[ErrorName, ...] = ()
    """Errors that no retry mends. What is in both is permanent."""

    def __post_init__(self) -> None:
        """Turn classes into names; refuse what cannot be meant, raises `ConfigurationError`."""
        for name in ("temporary", "permanent"):
            object.__setattr__(self, name, names_of(getattr(self, name)))
        for name, backoff in {"default": self.default, **self.queues}.items():
            whole = 0 <= backoff.max_retries <= MOST_RETRIES
            if not whole or not 0 <= backoff.backoff_s <= backoff.backoff_max_s <= LONGEST_S:
                written = f"{backoff.max_retries}/{backoff.backoff_s:g}/{backoff.backoff_max_s:g}"
                message = f"retries of {name}: {written}: {ALLOWED_BACKOFF}"
                raise ConfigurationError(message)

    def of(self, queue: str) -> Backoff:
        """The retries of a queue."""
        return self.queues.get(queue, self.default)


ALLOWED_LIMIT = f"allowed are seconds from 0 (none) to {LONGEST_S:.0f}, the soft limit below the hard one"
ALLOWED_BACKOFF = (
    f"allowed are 0 to {MOST_RETRIES} retries and seconds up to {LONGEST_S:.0f}, the first pause not above the longest"
)


def names_of(errors: tuple[ErrorName, ...]) -> tuple[str, ...]:
    """Errors by their names: as Python writes them, of the built-in ones without their module."""
    return tuple(error if isinstance(error, str) else name_of(error) for error in errors)


def name_of(error: type[BaseException]) -> str:
    """The name of a class of errors."""
    return error.__qualname__ if error.__module__ == "builtins" else f"{error.__module__}.{error.__qualname__}"


def is_one_of(error: type[BaseException], names: tuple[str, ...]) -> bool:
    """Whether a class of errors, or one that it derives from, is named."""
    return bool(names) and any(name_of(each) in names for each in error.__mro__ if issubclass(each, BaseException))


def parse_limits(text: str) -> dict[str, Limit]:
    """Limits by queue, written as `critical=30/60,task_queue=600/660`; raises ValueError, without words."""

    def limit(parts: list[str]) -> Limit:
        soft, hard = parts
        return Limit(_seconds(soft), _seconds(hard))

    return _by_queue(text, limit)


def parse_retries(text: str) -> dict[str, Backoff]:
    """Retries by queue, written as `critical=5/0.5/60` (how often, first pause, longest); raises ValueError."""

    def backoff(parts: list[str]) -> Backoff:
        often, first, longest = parts
        return Backoff(int(often), _seconds(first), _seconds(longest))

    return _by_queue(text, backoff)


def _by_queue(text: str, read: Callable[[list[str]], Value]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, values = entry.partition("=")
        if not equals or not name.strip() or name.strip() in found:
            raise ValueError(entry)
        found[name.strip()] = read(values.split("/"))
    return found


def _seconds(text: str) -> float:
    seconds = float(text)
    if not math.isfinite(seconds):
        raise ValueError(text)
    return seconds
