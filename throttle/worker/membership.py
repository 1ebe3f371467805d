"""What a worker says when its pod's name is taken, and how it leaves a fleet whose Redis is away for a moment."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING

import redis

if TYPE_CHECKING:
    from collections.abc import Callable

    from throttle.settings import ThrottleSettings

logger = logging.getLogger(__name__)

OWED_S = 5.0
AGAIN_S = 2.0
"""How long LEAVE is tried again: a server that restarts is back by then."""
PAUSE_S = 0.1


def clash_line(settings: ThrottleSettings, other: str) -> str:
    """What to tell a person whose pod's name is taken."""
    return (
        f"pod {settings.pod!r} already lives in fleet {settings.fleet!r} (as {other}, and it beats); give each pod a "
        "name of its own by POD_NAME"
    )


def send_owed(owes: Callable[[], bool], beat: Callable[[], object]) -> None:
    """Beat until no end is owed to Redis any more, which each answered beat sends again; a while at most."""
    give_up_s = time.monotonic() + OWED_S
    while owes() and time.monotonic() < give_up_s:
        with contextlib.suppress(redis.RedisError, OSError):
            beat()
        if owes():
            time.sleep(OWED_S / 20)


def leave(tell: Callable[[], bool], pod: str) -> bool:
    """Tell Redis the ends that are owed, and LEAVE; again where it did not hear. Whether it heard of it.

    A Redis that was silent is not asked again, since a pod is given so long to end. What does not get through leaves a
    silent member: it is counted, and what it held waits, for a TTL.
    """
    give_up_s = time.monotonic() + AGAIN_S
    while not tell():
        time.sleep(PAUSE_S)
        if time.monotonic() >= give_up_s:
            logger.warning("headroom: Redis did not hear that pod %s leaves: it is counted for a TTL", pod)
            return False
    return True
