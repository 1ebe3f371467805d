"""A file whose age says whether the main loop of a worker or of beat still turns.

Asking a worker over the broker (`celery inspect ping`) starts a whole Celery, seconds of a processor for each look, and
blames the worker when the broker is away. A file costs a `stat`, and no network.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

EVERY_S = 2.0
"""How often a loop that turns gives the sign."""
STALE_S = 15.0
"""Older than this, and the loop does not turn."""


def folder() -> Path:
    """Where a container with a read-only file system may write: the temporary folder."""
    return Path(tempfile.gettempdir())


def path(role: str) -> Path:
    """The file of a role."""
    return folder() / f"{role}.alive"


def give(role: str) -> None:
    """Renew the sign. OSError when the folder cannot be written: then nobody could tell that this container lives."""
    path(role).touch()


def withdraw(role: str) -> None:
    """Take the sign back: the loop ends in order, or does not consume any more."""
    path(role).unlink(missing_ok=True)


def age_s(role: str) -> float | None:
    """Seconds since the sign was given; None when there is none."""
    try:
        return max(0.0, time.time() - path(role).stat().st_mtime)
    except FileNotFoundError:
        return None
