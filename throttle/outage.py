"""What one member knows of a Redis that fails, so that it is not asked again and again while nobody answers.

========  ==========================================================================================================
seeing    a call runs into the error, after as long as the client's `socket_timeout` and retries say
away      nobody but the heartbeat asks Redis (without one: a call, once a second); others are answered at once
back      an answer came
========  ==========================================================================================================
"""

from __future__ import annotations

import logging
import time

from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

logger = logging.getLogger(__name__)

FAILURES = (RedisError, OSError)
"""All ways in which Redis can fail: nobody listens, no answer in time, LOADING, READONLY, full, no right."""
REFUSALS = (AuthenticationError, NoPermissionError)
"""Those that no waiting mends."""
ASK_AGAIN_S = 1.0


class Outage:
    """Whether Redis is away. Thread-safe."""

    def __init__(self, policy: str) -> None:
        """`policy` is named in the warning."""
        self.away = False
        self.uncounted = 0
        """Permits that were given meanwhile, without Redis."""
        self._policy = policy
        self._ask_again_s = 0.0

    def seen(self, error: Exception) -> None:
        """A call ran into this error. Logged once in an outage."""
        self._ask_again_s = time.monotonic() + ASK_AGAIN_S
        if not self.away:
            logger.warning("Redis fails (%s): on_redis_error=%s until it is back", error, self._policy)
        self.away = True

    def over(self) -> None:
        """An answer came."""
        if self.away:
            logger.info("Redis is back; permits given uncounted meanwhile: %d", self.uncounted)
        self.away, self.uncounted = False, 0

    def lets_ask(self, *, heartbeat: bool) -> bool:
        """Whether Redis may be asked by somebody else than the heartbeat; `heartbeat`: there is one."""
        return not self.away or (not heartbeat and time.monotonic() >= self._ask_again_s)
