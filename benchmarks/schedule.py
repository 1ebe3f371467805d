"""The Celery application whose schedule the benchmark ``beat`` measures: many entries, each a task of its own name."""
# pyright: basic

from __future__ import annotations

import os
from typing import Any

from celery import Celery

import throttle

QUEUE = "runs"
SHORTEST_S, LONGEST_S, ENTRIES = 0.5, 5.0, 20
INTERVALS_S = {
    f"entry-{number:02}": round(SHORTEST_S + (LONGEST_S - SHORTEST_S) * number / (ENTRIES - 1), 3)
    for number in range(ENTRIES)
}
"""Each entry, and the seconds between two of its due times."""


def create(broker: str, *, brake: bool) -> Celery:
    """Make the application; nothing is sent. With the brake, missed runs are made up, so that none may be missing."""
    made = Celery("schedule", broker=broker, set_as_current=False)
    made.conf.result_expires = None  # or Celery adds an entry of its own
    options = {"queue": QUEUE, **({"catchup": "all"} if brake else {})}
    made.conf.beat_schedule = {
        name: {"task": name, "schedule": interval_s, "options": options} for name, interval_s in INTERVALS_S.items()
    }
    if brake:
        throttle.install(made, fleet="benchmark")
    return made


def __getattr__(name: str) -> Any:
    """Make ``app`` when Celery asks for it: the benchmark imports this module without that environment."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()["app"] = create(os.environ["REDIS_URL"], brake=bool(os.environ["BENCH_GATE"]))
    return made
