"""Jobs a person can run at once: files to compress and to check, loads to try a fleet with, a small Discord bot."""

from __future__ import annotations

# What a Celery application includes to have all of them.
MODULES = (
    "tasks.jobs.files",
    "tasks.jobs.gateway_event",
    "tasks.jobs.in_order",
    "tasks.jobs.loads",
    "tasks.jobs.pulse",
)

__all__ = ["MODULES"]
