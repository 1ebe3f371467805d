# pyright: basic
"""The entries of the schedule as the code declares them, checked before any runs.

`beat_schedule` and `add_periodic_task` are Celery's. Two further options say what becomes of runs that were missed:

    "options": {"catchup": "all", "catchup_limit": 24}

=========  =================================================================================================
catchup    due times that passed while nobody led, or Redis was away
=========  =================================================================================================
"skip"     are left out; the default. The newest still runs when it is no older than `LATE_S`: a change of
           the leader loses no run
"last"     one run at once, for the newest of them
"all"      one run each, the oldest first; of more than `catchup_limit` (100) the newest
=========  =================================================================================================

The task finds the due time that it runs for in its message's headers: `beat_entry`, `beat_due` (ISO 8601, UTC).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from celery import beat

from throttle.errors import ConfigurationError
from throttle.schedule import Record
from throttle.worker.dues import Dues, Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

CATCHUPS = ("skip", "last", "all")
LATE_S = 60
LIMIT = 100
MOST = 1000


class Entry(beat.ScheduleEntry):
    """An entry with what becomes of its missed runs."""

    name: str  # pyright: ignore[reportIncompatibleVariableOverride] - Celery gives None until one is made
    task: str
    options: dict[str, Any]  # pyright: ignore[reportIncompatibleVariableOverride] - likewise
    catchup = "skip"
    limit = LIMIT
    dues: Dues

    def __init__(self, *args: Any, **options: Any) -> None:
        """As Celery's. Raises `ConfigurationError`, one line, for what cannot be run."""
        try:
            super().__init__(*args, **options)
            self.options = dict(self.options)
            self._read_options()
            self.dues = Dues(self.schedule)
        except (Unusable, TypeError, ValueError, AttributeError) as error:
            name = options.get("name") or (args[0] if args else None)
            message = f"beat_schedule[{name!r}]: {error}"
            raise ConfigurationError(message) from None

    def _read_options(self) -> None:
        if not isinstance(self.task, str) or not self.task:
            raise Unusable(f"task={self.task!r}: allowed is the name of a task")
        self.catchup = self.options.pop("catchup", "skip")
        if self.catchup not in CATCHUPS:
            raise Unusable(f"catchup={self.catchup!r}: allowed is {', '.join(map(repr, CATCHUPS))}")
        self.limit = self.options.pop("catchup_limit", LIMIT)
        if not isinstance(self.limit, int) or isinstance(self.limit, bool) or not 1 <= self.limit <= MOST:
            raise Unusable(f"catchup_limit={self.limit!r}: allowed is a whole number from 1 to {MOST}")

    def record(self, known: Record | None, now_us: int) -> Record:
        """The record to begin a term with: what is known, or a start at this moment.

        A schedule that was changed begins with the change: nothing that it names before counts as missed.
        """
        if known is None:
            return Record(self.dues.after(now_us), digest=self.dues.digest)
        if known.digest == self.dues.digest:
            return known
        due_us = self.dues.after(known.last_us or now_us)
        if due_us <= now_us:
            due_us = self.dues.after(now_us)
        return known._replace(due_us=due_us, digest=self.dues.digest)


class Plan(NamedTuple):
    """The next thing to do with an entry whose due time has come."""

    run_us: int | None
    """The due time to run for; None to move on without a run."""
    next_us: int
    """The due time after that."""
    missed: bool
    """Whether some before it are left out."""


def plan(entry: Entry, due_us: int, now_us: int) -> Plan:
    """Decide it. `due_us` is the first due time that did not run; it has come."""
    wanted = entry.dues.newest(due_us, now_us, entry.limit if entry.catchup == "all" else 1)
    if entry.catchup == "skip" and wanted[-1] < now_us - LATE_S * 1_000_000:
        return Plan(None, entry.dues.after(wanted[-1]), missed=True)
    return Plan(wanted[0], wanted[1] if len(wanted) > 1 else entry.dues.after(wanted[0]), missed=wanted[0] != due_us)


def records(entries: Mapping[str, Entry], known: Mapping[str, Record], now_us: int) -> dict[str, Record]:
    """The records to begin a term with; what the code declares no more is left out."""
    return {name: entry.record(known.get(name), now_us) for name, entry in entries.items()}
