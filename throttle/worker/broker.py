# pyright: basic
"""The way to a Redis broker in bad times: what kombu's own lacks there, for the worker, its children and producers.

=================================  ======================================  ==========================================
trouble                            kombu and Celery by themselves          here
=================================  ======================================  ==========================================
the other end is gone, unsaid      wait without a limit, for ever          `time_limits`; `is_overdue` for the one
                                                                           connection that waits by polling
nobody listens, for an hour        pauses grow to half a minute; the       `BrokerConnection`: even steps; no last
                                   100th try is the last                   try (`broker_connection_max_retries`)
made a replica (READONLY)          the worker dies; a producer gets the    `following`: the connection is dropped,
                                   error for ever on its connection        the next may lead to the new master
cannot save, too few replicas      the worker dies                         `refusal`: it waits
memory is full                     no worker can connect to work off       `SturdyChannel`: what a full Redis need
                                   what fills it                           not be told is not told
an error closed the channel        its next publication fails with an      `SturdyChannel`: as a lost connection,
                                   AttributeError                          which kombu makes anew
nothing was asked, and the other   it reads what is no connection any      `SturdyChannel`: nothing came; kombu
end closed it                      more: the worker dies (gevent)          connects anew when it asks next
=================================  ======================================  ==========================================
"""

from __future__ import annotations

import logging
import random
import selectors
import ssl
import time
from functools import cache
from queue import Empty
from typing import TYPE_CHECKING, Any

import redis
from kombu.connection import Connection
from kombu.transport import redis as kombu_redis
from redis.exceptions import ReadOnlyError

from throttle.worker.deadline import Punctual

if TYPE_CHECKING:
    from throttle.scripts import Operations
    from throttle.settings import ThrottleSettings

logger = logging.getLogger(__name__)

ANSWER_S = 5.0
RETRY_S = 2.0
"""Longest pause between two tries to reach a broker."""
NAP_S = 1.1
"""No command that is polled for asks the server to wait longer, unless kombu's `polling_interval` says so."""


def answer_s(settings: ThrottleSettings) -> float:
    """Seconds that an answer of Redis may take: a third of the TTL, five at most.

    For longer a pod might be taken for dead meanwhile.
    """
    return min(ANSWER_S, settings.beat_s)


def time_limits(settings: ThrottleSettings) -> dict[str, float]:
    """Transport options for the connections to a Redis broker, in seconds, for those that an app does not set."""
    limit_s = answer_s(settings)
    return {"socket_timeout": limit_s, "socket_connect_timeout": limit_s, "health_check_interval": ANSWER_S}


class BrokerConnection(Connection):
    """Tries to connect in even steps: a broker that is back after an hour is used at once."""

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        """As kombu's, but for the pauses between two tries; pods do not make theirs in step."""
        pauses = {"interval_start": RETRY_S * random.uniform(0.5, 1.0), "interval_max": RETRY_S}
        return super().ensure_connection(*args, **(pauses | options))


class Demoted(redis.ConnectionError):
    """The server has become a replica. The next connection may lead to another."""


@cache
def following(connection_class: type[Any]) -> type[Any]:
    """A connection that gives up a server which has become a replica, and keeps to the thread's deadline.

    Behind a name that moves (a Kubernetes service, a DNS entry) the next connection leads to the new master, while an
    open one would be answered READONLY for ever. redis-py does so with Sentinel alone.
    """

    class Following(Punctual, connection_class):
        def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return super().read_response(*args, **options)
            except redis.ResponseError as error:
                if isinstance(error, ReadOnlyError) or "READONLY" in str(error):  # the latter from a script, before 7
                    self.disconnect()
                    message = f"the server is a replica now: {first_line(error)}"
                    raise Demoted(message) from error
                raise

    return Following


class SturdyChannel(kombu_redis.Channel):
    """kombu's channel, for a Redis that was made a replica or is full, or closes connections."""

    @property
    def connection_class(self) -> type[Any]:
        """Of connections without TLS."""
        return following(super().connection_class)

    @property
    def connection_class_ssl(self) -> type[Any]:
        """Of connections with TLS."""
        return following(super().connection_class_ssl)

    @property
    def is_asked(self) -> bool:
        """Whether an answer is awaited on a connection that has not been closed here."""
        asked: Any = self._in_poll
        return bool(asked) and asked._sock is not None

    def _brpop_read(self, **options: Any) -> Any:
        """Read the answer, if one was asked for; raises `Empty` when none was.

        kombu drops a connection that becomes readable while it has no credit, but goes on to poll its number. Where
        credit comes back in the middle of that (a task ends in another greenlet), it would read from what is closed.
        """
        if self.is_asked:
            return super()._brpop_read(**options)
        self._in_poll = None
        if self.client.connection is not None:
            self.client.connection.disconnect()
        raise Empty

    def basic_publish(self, *args: Any, **options: Any) -> Any:
        """Publish. kombu may try to on a channel that it has closed after an error."""
        if self.closed:
            message = "the channel is closed"
            raise redis.ConnectionError(message)
        return super().basic_publish(*args, **options)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        """Bind. A full Redis that refuses it must not keep a pod from coming (back) to work off what fills it.

        It does without what is bound already, and what needs no binding: broadcasts, and replies of remote control,
        which nobody could write either.
        """
        try:
            super()._queue_bind(exchange, routing_key, pattern, queue)
        except redis.OutOfMemoryError as error:
            bound = (routing_key or "", pattern or "", queue or "") in self.get_table(exchange)
            if not (bound or self.typeof(exchange).type == "fanout" or queue.endswith(".pidbox")):
                raise
            logger.debug("not bound: %s to %s (%s)", queue, exchange, error)

    def _size(self, queue: str) -> int:
        """Messages in a queue, none where its key is no list; in no transaction, which a full Redis 7.0 refuses."""
        with self.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
            for priority in self.priority_steps:
                pipe.llen(self._q_for_pri(queue, priority))
            sizes = pipe.execute(raise_on_error=False)
        for error in sizes:
            if isinstance(error, Exception) and "WRONGTYPE" not in str(error):
                raise error
        return sum(size for size in sizes if isinstance(size, int))

    def _delete(self, queue: str, exchange: str, routing_key: str, pattern: str, *args: Any, **options: Any) -> None:
        """Delete a queue; likewise."""
        try:
            super()._delete(queue, exchange, routing_key, pattern, *args, **options)
        except redis.OutOfMemoryError:
            with self.conn_or_acquire(options.get("client")) as client:
                client.delete(*[self._q_for_pri(queue, priority) for priority in self.priority_steps])

    def maybe_refresh_binding_expiry(self) -> None:
        """Keep the bindings of queues that expire, unless Redis is full: kombu would say so each second."""
        try:
            super().maybe_refresh_binding_expiry()
        except redis.OutOfMemoryError as error:
            logger.debug("bindings not refreshed: %s", error)


def refusal(operations: Operations) -> str:
    """Why the server takes no writes: it is a replica, cannot save, has too few replicas. Empty when it does.

    A full memory is no such reason: to take and to acknowledge only frees. Raises `redis.RedisError` when nobody
    answers. One round trip.
    """
    try:
        operations.client.delete(operations.keys.namespace() + "none")
    except (redis.ResponseError, Demoted) as error:
        return first_line(error)
    return ""


def is_overdue(channel: Any, answer_s: float) -> bool:
    """Whether the answer that a channel polls for should have come `answer_s` ago.

    A half-open connection never becomes readable. The beats of such a pod go by another connection and may well get
    through, so that the fleet would count on it for as long as kombu waits (half a minute and more).
    """
    connection = getattr(channel, "_in_poll", None)
    if not connection or channel._brpop_sent_at is None:
        return False
    waited_s = time.monotonic() - channel._brpop_sent_at
    return waited_s > max(channel.brpop_timeout, NAP_S) + answer_s and not _readable(connection)


def _readable(connection: Any) -> bool:
    """Whether an answer has come that nobody has read yet, because the loop was busy. It is left where it is."""
    sock = connection._sock
    if sock is None:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0)) or (isinstance(sock, ssl.SSLSocket) and sock.pending() > 0)


def first_line(error: Exception) -> str:
    """What an error says, without the advice that a server adds in whole paragraphs."""
    line = str(error).partition("\n")[0]
    return line.partition(". ")[0] if isinstance(error, redis.ResponseError) else line.rstrip(".")
