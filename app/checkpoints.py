"""`python -m app checkpoints`: which tasks can go on where they were, how far they are, and since when."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from app.settings import load_settings
from throttle.commands.printing import columns, in_one_line

if TYPE_CHECKING:
    from tasks.checkpoints import Listed

HEAD = ("ID", "TASK", "STATUS", "PROGRESS", "AGE", "BYTES")


def show(*, as_json: bool) -> None:
    """Print all checkpoints of the fleet, those that changed last first.

    Raises:
        StoreAway: the store does not answer.
        ConfigurationError: a setting is not allowed.
    """
    # Celery only when the command runs: the others of this command line start faster without.
    from app.celery import create  # noqa: PLC0415
    from tasks.jobs.resumable import FleetStore  # noqa: PLC0415

    store = FleetStore(create(load_settings()))
    try:
        found = sorted(store.list(), key=lambda listed: (listed.age_s, listed.task_id))
    finally:
        store.close()
    lines = [json.dumps([as_object(listed) for listed in found])] if as_json else list(columns(HEAD, map(row, found)))
    sys.stdout.write("\n".join(lines) + "\n")


def as_object(listed: Listed) -> dict[str, object]:
    """What programs read."""
    return {
        "id": listed.task_id,
        "task": listed.task,
        "status": listed.status,
        "progress": round(listed.progress, 4),
        "age_s": round(listed.age_s, 1),
        "bytes": listed.size,
    }


def row(listed: Listed) -> tuple[str, ...]:
    """What people read; ids and names come from messages."""
    return (
        in_one_line(listed.task_id),
        in_one_line(listed.task),
        listed.status,
        f"{100 * listed.progress:.1f} %",
        f"{listed.age_s:.0f} s",
        str(listed.size),
    )
