"""Jobs a person can run at once: files to compress and to check, loads to try a fleet with."""

from __future__ import annotations

# What a Celery application includes to have all of them.
MODULES = ("tasks.jobs.files", "tasks.jobs.loads", "tasks.jobs.pulse")

__all__ = ["MODULES"]
