"""How fast a freed slot is used again. Pure: from the times that the tasks recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.fleet import Run


def wake_ups_ms(runs: Iterable[Run], *, places: int, critical: str) -> list[float]:
    """Milliseconds from each end of a task to the start of the normal task that took its place.

    Args:
        runs: of a flood, in which normal work waits from the first start to the last.
        places: how many tasks may run at once before a normal one is not admitted any more.
        critical: the queue of the critical lane. Its tasks take a place as well, but wait for none.

    A place becomes free when an end leaves fewer than ``places`` tasks running. The next normal task
    to start takes the place that has been free for longest; a critical one takes the one that became
    free last, if it needs one of them. What starts at the beginning takes places that no end has
    freed, and counts for nothing.
    """
    # At the same instant an end comes before a start: it may have made room for it.
    events = sorted(
        event
        for run in runs
        for event in ((run.began_s, True, run.queue == critical), (run.ended_s, False, run.queue == critical))
    )
    free: list[float] = []
    waits: list[float] = []
    running = 0
    for at_s, starts, is_critical in events:
        if not starts:
            running -= 1
            if running < places:
                free.append(at_s)
            continue
        running += 1
        if not is_critical and free:
            waits.append((at_s - free.pop(0)) * 1000)
        elif is_critical and len(free) > max(0, places - running):
            free.pop()
    return waits
