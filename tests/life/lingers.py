"""An app whose worker does not come to its end: what it does there never returns."""
# pyright: basic

from __future__ import annotations

import time
from typing import Any

from celery import signals


@signals.worker_shutdown.connect
def flush_for_ever(**_: Any) -> None:
    """As a client of some other service that is away, and has no time limit."""
    time.sleep(600)
