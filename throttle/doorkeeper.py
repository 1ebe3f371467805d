"""The doorkeeper: one member of the fleet that watches the queues for producers that ring no bell.

Plain Celery, kombu or another language publishes with LPUSH. Nobody is rung, and the message waits until some idle pod
looks by itself, up to a second. So one member, by a lease, holds a connection of its own with CLIENT TRACKING on:

    idle      WATCH sent: it renews the lease, reads the queues' lengths and rings for what lies there
    told      Redis says that one of these lengths changed: WATCH again, at once but not within a pause of the last
    renewal   nothing for RENEW_S: WATCH again

States of a member: outside (another one watches, or none), keeper, ended. There is at most one keeper per lease time,
by Redis' clock. Two at once, or none, would be harmless: bells are hints, and each pod's own look every second stands.

What a crash leaves: the lease, for LEASE_S. Every TAKE that finds nothing says whether there is a keeper; the first
member that hears of none tries to become it. So a dead keeper costs what no keeper costs, for about a second.

Redis tells of a tracked key once, so after each telling the keys are tracked anew (OPTIN: only what is asked for, not
what WATCH reads inside), and then WATCH looks: in this order nothing falls between. An idle fleet pays 1 / RENEW_S
commands a second for it, whatever its size. The pause is PAUSE_S; it doubles with each look that had nobody to ring
(producers ring for themselves, or the fleet is full) up to BUSY_PAUSE_S, so a busy fleet pays 3 / BUSY_PAUSE_S at most.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, cast

import redis
from redis.exceptions import NoScriptError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from throttle.scripts import Operations, Watched

logger = logging.getLogger(__name__)

LEASE_S = 1.0
RENEW_S = 0.4
PAUSE_S = 0.01
BUSY_PAUSE_S = 0.1
ANSWER_S = 5.0
INVALIDATE = b"invalidate"


def _as_it_is(push: Any) -> Any:
    return push


class Doorkeeper:
    """A daemon thread that watches while it is this member's turn.

    `client` is used for its connection settings alone; the thread has a connection of its own that speaks RESP3.
    `member` is asked for the name before each look: '' while this process is not a living member. A server that
    refuses CLIENT TRACKING is reported once, and then nobody here watches.
    """

    def __init__(
        self,
        client: redis.Redis,
        operations: Operations,
        member: Callable[[], str],
        *,
        lease_s: float = LEASE_S,
        renew_s: float = RENEW_S,
    ) -> None:
        """Prepare; `start` begins."""
        self._lease_ms, self._renew_s = round(lease_s * 1000), renew_s
        self._operations = operations
        self._member = member
        settings: dict[str, Any] = dict(client.connection_pool.connection_kwargs)
        settings["protocol"] = 3
        settings["socket_timeout"] = settings.get("socket_timeout") or ANSWER_S
        self._connection = cast("Any", client.connection_pool.connection_class(**settings))
        self._wanted = threading.Event()
        self._ended = False
        self._told = False
        self._thread = threading.Thread(target=self._run, name="headroom-doorkeeper", daemon=True)
        self.keeping = False
        """Whether this member is the keeper, as far as it knows."""

    def start(self) -> None:
        """Begin; as an outsider."""
        self._thread.start()

    def wanted(self) -> None:
        """Somebody heard that there is no keeper: try to become it. Cheap, from any thread."""
        self._wanted.set()

    def stop(self, timeout_s: float = 2.0) -> None:
        """End the thread; the lease runs out by itself."""
        self._ended = True
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._ended:
            self._wanted.wait()
            self._wanted.clear()
            try:
                self._keep()
            except (redis.RedisError, OSError) as error:
                logger.debug("doorkeeper: %s", error)
            except Exception:
                logger.exception("doorkeeper failed")
            finally:
                self.keeping = self._told = False
                self._connection.disconnect()

    def _keep(self) -> None:
        """Watch until somebody else does, the membership ends, or Redis is away."""
        self._connection.connect()
        # redis-py hands a push on only to a handler; this one makes it an answer for `_ask` to see
        self._connection._parser.set_invalidation_push_handler(_as_it_is)  # noqa: SLF001
        tracked: set[bytes] = set()
        told, pause_s = False, PAUSE_S
        while not self._ended:
            member = self._member()
            found = self._watch(member, tracked if told else ()) if member else None
            if found is None or not (self.keeping or self._begin_tracking()):
                return
            self.keeping = True
            if not tracked.issuperset(found.keys):
                tracked, told = set(found.keys), True
                continue  # look once more: something may have come before these keys were tracked
            pause_s = PAUSE_S if found.rung or not told else min(pause_s * 2, BUSY_PAUSE_S)
            looked_s = time.monotonic()
            told = self._told or self._connection.can_read(self._renew_s)
            if told:
                time.sleep(max(0.0, pause_s - (time.monotonic() - looked_s)))
                self._read_invalidations()

    def _begin_tracking(self) -> bool:
        try:
            self._ask("CLIENT", "TRACKING", "ON", "OPTIN")
        except redis.ResponseError as error:
            logger.warning(
                "no doorkeeper from this pod: the server refuses CLIENT TRACKING (%s); "
                "messages of producers without this library may wait up to a second", error,
            )  # fmt: skip
            self._ended = True
            return False
        return True

    def _read_invalidations(self) -> None:
        """Read what Redis pushed; which keys they were does not matter, WATCH reads all of them."""
        while self._connection.can_read(0):
            self._connection.read_response(push_request=True)
        self._told = False

    def _watch(self, member: str, track: Collection[bytes]) -> Watched | None:
        """Have these keys tracked anew, then look: what comes between the two is seen by the look."""
        if track:
            self._ask("CLIENT", "CACHING", "YES")
            self._ask("EXISTS", *track)
        command = self._operations.watch_command(member, self._lease_ms)
        try:
            answer = self._ask(*command)
        except NoScriptError:
            self._operations.load("watch")
            answer = self._ask(*command)
        return self._operations.parse_watch(answer)

    def _ask(self, *command: Any) -> Any:
        """The answer to a command; what Redis tells before it is noted, for it has ended the tracking of a key."""
        self._connection.send_command(*command)
        while True:
            answer = self._connection.read_response(push_request=True)
            if not (isinstance(answer, list) and answer[:1] == [INVALIDATE]):
                return cast("Any", answer)
            self._told = True
