"""An app whose schedule runs several times a second, for tests of beats. Nobody needs to run its tasks."""

# pyright: basic

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

from celery import Celery

import throttle

app = Celery("beats", broker=os.environ["REDIS_URL"])
app.conf.result_expires = None  # or Celery adds an entry of its own
app.conf.beat_schedule = {
    "each": {"task": "each", "schedule": 0.1, "options": {"catchup": "all", "catchup_limit": 1000, "queue": "each"}},
    "last": {"task": "last", "schedule": 0.7, "options": {"catchup": "last", "queue": "last", "expires": 60}},
    "skip": {"task": "skip", "schedule": 0.3, "options": {"queue": "skip"}},
}
throttle.install(app)

if off_s := float(os.environ.get("CLOCK_OFF_S", "0")):
    # What Python reads of this machine's clock is off. The intervals that it measures are not.
    real = time.time
    time.time = lambda: real() + off_s
    app.now = lambda: datetime.now(UTC) + timedelta(seconds=off_s)
