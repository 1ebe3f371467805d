"""The thread that keeps a member alive.

It beats whatever the work does, and is the only place that joins again after the fleet lost
sight of the member. What it calls is given to it, so that plain Python (`Fleet`) and the Celery worker share it.

A member's own view of its lease runs on the monotonic clock from *before* the beat was sent: when `lease_left_s` is
positive, Redis has surely heard from the member within the TTL. A process that was frozen sees it run out on waking,
before anybody tells it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import TYPE_CHECKING

import redis

from throttle import events

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

EVERY = 2 / 3
"""Of a beat (a third of the TTL), from one to the next: a name may be taken over after one beat of silence, so silence
must mean that beats were missed, not that one was a little late."""
RETRY_S = 0.3
"""First pause after a beat that failed or was refused; doubles up to one beat, with jitter."""


class Heartbeat:
    """Calls `beat` every two thirds of `beat_s` seconds in a daemon thread until `stop`.

    `beat` returns True when the member stands, False when it does not (it is called again soon). Errors of Redis count
    as False and are logged once until a beat succeeds; any other exception is logged and counts as False as well: this
    thread ends by `stop` alone.
    """

    def __init__(self, beat: Callable[[], bool], *, beat_s: float, ttl_s: float, name: str = "headroom-beat") -> None:
        """Prepare; `start` begins."""
        self._beat = beat
        self._beat_s = beat_s * EVERY
        self._ttl_s = ttl_s
        self._wake = threading.Condition()
        self._kicked = False
        self._stopped = False
        self._lease_end_s = 0.0
        self._silent = False
        self.away = False
        """The last try ran into an error of Redis instead of an answer."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to beat, one interval from now."""
        self._thread.start()

    def kick(self) -> None:
        """Beat now, not at the end of the interval. From any thread; its own goes on as it would, or never rest."""
        if threading.current_thread() is self._thread:
            return
        with self._wake:
            self._kicked = True
            self._wake.notify()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop beating; waits for a beat under way up to `timeout_s`. Does not end the membership."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    @property
    def lease_left_s(self) -> float:
        """Seconds for which the fleet surely still counts this member; 0 when it may not."""
        return max(0.0, self._lease_end_s - time.monotonic())

    @property
    def age_s(self) -> float:
        """Seconds since the last join or beat that was accepted was sent; meaningless before the first."""
        return time.monotonic() - (self._lease_end_s - self._ttl_s)

    def renewed(self, sent_s: float) -> None:
        """Note that a join or beat sent at `sent_s` (monotonic) was accepted."""
        self._lease_end_s = max(self._lease_end_s, sent_s + self._ttl_s)

    def _run(self) -> None:
        pause_s, retry_s = self._beat_s, RETRY_S
        while self._wait(pause_s):
            sent_s = time.monotonic()
            if self._try_beat():
                self.renewed(sent_s)
                pause_s, retry_s = self._beat_s, RETRY_S
            else:
                pause_s = retry_s * random.uniform(0.7, 1.3)
                retry_s = min(retry_s * 2, self._beat_s)

    def _wait(self, pause_s: float) -> bool:
        with self._wake:
            self._wake.wait_for(lambda: self._kicked or self._stopped, pause_s)
            self._kicked = False
            return not self._stopped

    def _try_beat(self) -> bool:
        sent_s, outcome = time.monotonic(), "broken"
        try:
            stands = self._beat()
            outcome = "accepted" if stands else "refused"
        except (redis.RedisError, OSError) as error:
            outcome = "failed"
            if not self._silent:
                logger.warning("no beat: Redis does not answer (%s); trying on", error)
            self._silent = True
            return False
        except Exception:
            logger.exception("beat failed; trying on")
            return False
        finally:
            self.away = outcome == "failed"
            events.emit(events.BEAT, outcome, time.monotonic() - sent_s)
        if stands and self._silent:
            logger.info("beating again")
            self._silent = False
        return stands
