# pyright: basic
"""When an entry of the schedule is due, as pure functions of Celery's schedules: no clock is read here.

Due times form a sequence that depends on nothing but the schedule and the due time before. So all beats agree on it
whenever they look, an interval does not drift with the lateness of its runs, and "which were missed" has an answer.

Celery's schedules answer "how long from now?". Asked with a clock that stands still at the due time before, they tell
the next one. What only `is_due` knows, in a schedule of an app's own, cannot be had this way: such a one is refused.
"""

from __future__ import annotations

import copy
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from celery import schedules

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SHORTEST_S = 0.01
KINDS: tuple[type[Any], ...] = (schedules.schedule, schedules.crontab, schedules.solar)
STEPS_S = (0, 1, 60, 3600, 86400)
"""How far a schedule is asked to look beyond a time that it names again: across the hour that summer time repeats."""
WINDOWS_S = (60, 3600, 86400, 32 * 86400, 400 * 86400)
"""How far back the newest due times are looked for, before all of the past is gone through."""


def moment(us: int) -> datetime:
    """Microseconds of the server's clock as a time in UTC, exactly."""
    return EPOCH + us * MICROSECOND


def microseconds(at: datetime) -> int:
    """The reverse."""
    return (at - EPOCH) // MICROSECOND


class Unusable(ValueError):
    """A schedule that has no due times; the text says what is allowed."""


class Dues:
    """The due times of one schedule."""

    def __init__(self, schedule: Any) -> None:
        """Raises `Unusable`."""
        own = next((kind for kind in KINDS if isinstance(schedule, kind)), None)
        if own is None or any(
            getattr(type(schedule), name) is not getattr(own, name) for name in ("is_due", "remaining_estimate")
        ):
            message = f"schedule={schedule!r}: allowed is a number of seconds, a timedelta, crontab(...) or solar(...)"
            raise Unusable(message)
        self._interval_us = 0
        if own is schedules.schedule:
            if schedule.run_every.total_seconds() < SHORTEST_S:
                message = f"schedule={schedule.run_every!r}: allowed are {SHORTEST_S:g} seconds or more"
                raise Unusable(message)
            if not schedule.relative:
                self._interval_us = schedule.run_every // MICROSECOND
        self._schedule = copy.copy(schedule)
        self._schedule.app = schedule.app  # with it goes the time zone, which a copy of theirs forgets
        self.digest = _digest(schedule, own)

    def after(self, us: int) -> int:
        """The due time that follows `us`, which is one itself or where the sequence begins."""
        if self._interval_us:
            return us + self._interval_us
        for step_s in STEPS_S:
            at = (moment(us) + timedelta(seconds=step_s)).astimezone(self._schedule.tz)
            self._schedule.nowfun = lambda at=at: at
            found = microseconds(at.astimezone(UTC) + self._schedule.remaining_estimate(at))
            if found > us:
                return found
        message = f"{self._schedule!r} names no time after {moment(us)}"
        raise Unusable(message)

    def newest(self, first_us: int, until_us: int, count: int) -> list[int]:
        """The newest `count` due times up to `until_us`, the oldest first; `first_us` is the first one there may be."""
        if first_us > until_us:
            return []
        if self._interval_us:
            last = (until_us - first_us) // self._interval_us
            return [first_us + n * self._interval_us for n in range(max(0, last - count + 1), last + 1)]
        found: deque[int] = deque(maxlen=count)
        for window_s in (*WINDOWS_S, None):
            start_us = first_us if window_s is None else max(first_us, until_us - window_s * 1_000_000)
            found.clear()
            found.extend(self._between(start_us, first_us, until_us))
            if len(found) == count or start_us == first_us:
                break
        return list(found)

    def _between(self, start_us: int, first_us: int, until_us: int) -> Iterator[int]:
        due = first_us if start_us == first_us else self.after(start_us)
        while due <= until_us:
            yield due
            due = self.after(due)


def _digest(schedule: Any, kind: type) -> str:
    """What makes two schedules the same sequence of due times."""
    if kind is schedules.schedule:
        return f"every {schedule.run_every.total_seconds():.6f} s{' relative' if schedule.relative else ''}"
    return f"{schedule!r} {schedule.tz}"
