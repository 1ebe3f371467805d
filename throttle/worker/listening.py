# pyright: basic
"""Remote control on gevent, whose connection may be lost alone.

Where a worker has no event loop, Celery listens for `inspect` and `control` in a greenlet of its own, on a connection
of its own. That connection is idle for hours: a balancer cuts it, a server closes it, its other end vanishes. The
greenlet ends then with a traceback, or waits for ever, and as long as the connection for messages stands nobody answers
to Flower any more. Here it connects anew, in even steps, and asks (PING) whether the other end is still there, as kombu
does on the other pools.

States: listening, away (a pause, and another try), ended by `on_stop`. The consumer that begins anew stops one and
starts the next, each with an event of its own, so there are never two. What was asked while it was away is not heard;
a broadcast belongs to nobody.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Any

from celery.worker import pidbox

from throttle.worker.broker import ANSWER_S, RETRY_S

logger = logging.getLogger(__name__)

TURN_S = 1.0
"""How long one wait for a broadcast lasts, and so how soon it is noticed that it is to end."""


class Pidbox(pidbox.gPidbox):
    """Celery's own, but for the life of its connection."""

    _away = False
    """It was told of in the log that the connection is lost, and there is no other yet."""

    def loop(self, c: Any) -> None:
        """Listen until `on_stop`, or the consumer has no connection; raises no error of a connection."""
        shutdown, stopped = threading.Event(), threading.Event()
        self._node_shutdown, self._node_stopped = shutdown, stopped
        try:
            while c.connection and not shutdown.is_set():
                errors = c.connection.connection_errors + c.connection.channel_errors
                try:
                    self._listen(c, shutdown)
                except errors as error:
                    if not self._away:
                        logger.warning("headroom: remote control is away (%s): it connects anew", error)
                    self._away = True
                    shutdown.wait(RETRY_S)
        finally:
            stopped.set()

    def _listen(self, c: Any, shutdown: threading.Event) -> None:
        with c.app.connection_for_read() as connection:
            connection.connect()
            logger.info("pidbox: Connected to %s.", connection.as_uri())
            self._do_reset(c, connection)
            self._away = False
            resets, asked_s = self._resets, time.monotonic()
            while c.connection and not shutdown.is_set():
                if resets < self._resets:
                    resets = self._resets
                    self._do_reset(c, connection)
                with contextlib.suppress(TimeoutError):
                    connection.drain_events(timeout=TURN_S)
                if time.monotonic() - asked_s >= ANSWER_S:
                    asked_s = time.monotonic()
                    _ask(connection)


def _ask(connection: Any) -> None:
    """Send a PING to a Redis that has said nothing for a while; kombu drops the connection once several are owed."""
    cycle = getattr(connection.transport, "cycle", None)
    if cycle is not None:
        cycle.maybe_check_subclient_health()


def install() -> None:
    """Have the worker of this process listen so. Before its consumer is made; safe to repeat."""
    pidbox.gPidbox = Pidbox
