"""The brake without Celery: presence and a semaphore that follows the number of living pods.

    fleet = Fleet(redis.Redis(), name="renders", pod="render-7")
    with fleet:                                   # joins, beats in a thread, leaves
        while True:
            permit = fleet.try_acquire()          # None: the fleet is at capacity
            if permit is None:
                wait()
                continue
            with permit:
                work()

A permit is an entry of what this member holds, so the rule, the index of busy pods and the end of dead pods are those
of the package docstring. A pod counts once, however many permits it has.

While Redis fails
=================
Whatever the way (nobody listens, no answer in time, LOADING, READONLY, full, no right): `try_acquire` answers by the
policy `on_redis_error`, at once while the failure lasts (`throttle.outage`); what is released, or was perhaps acquired,
is given back by the JOIN that follows; and the block of `with fleet` begins and ends all the same. The other methods
raise what redis-py raises. With "allow" work goes on uncounted meanwhile, so that the fleet may stand above its
capacity afterwards; with "deny" it stops.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Self

from redis.exceptions import ReadOnlyError

from throttle.errors import ConfigurationError, NameClash, NotAMember
from throttle.heartbeat import Heartbeat
from throttle.keys import Keys
from throttle.outage import FAILURES, REFUSALS, Outage
from throttle.permit import Permit
from throttle.scripts import Clash, Counts, Operations, Standing, Take
from throttle.settings import OnRedisError, load_settings

if TYPE_CHECKING:
    from types import TracebackType

    import redis

    from throttle.permit import Lane

logger = logging.getLogger(__name__)


def new_member(pod: str) -> str:
    """A new incarnation of a pod: its name and a boot id that nobody had before."""
    return f"{pod}#{os.urandom(4).hex()}"


class Fleet:
    """One member of a fleet. Thread-safe.

    Arguments: `client`, a connected `redis.Redis`; `name` of the fleet; `pod`, unique in it; `ratio` (0 to 1); `ttl_s`
    (seconds, at least 3); `prefix` before all keys; `on_redis_error` (allow or deny). None means the environment, then
    the default (`throttle.settings`). Raises `ConfigurationError` on a bad value.
    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        name: str | None = None,
        pod: str | None = None,
        ratio: float | None = None,
        ttl_s: float | None = None,
        journal: int | None = None,
        prefix: str = "",
        on_redis_error: OnRedisError | None = None,
    ) -> None:
        """Prepare; nothing is sent before `join`."""
        self.settings = load_settings(
            fleet=name, pod=pod, ratio=ratio, ttl_s=ttl_s, journal=journal, on_redis_error=on_redis_error
        )
        self.operations = Operations(client, Keys(self.settings.fleet, prefix), self.settings.rule())
        self.member = ""
        self._standing: Standing = "lost"
        self._epoch = ""
        self._next_id = 1
        self._joined = False
        self._given_up = True  # whether the fleet said that it does not know the member
        self._permits: dict[int, Permit] = {}
        self._draining = False
        self._owed: object = None  # anew for each permit that Redis was not told the end of
        self._outage = Outage(self.settings.on_redis_error)
        self._lock = threading.RLock()
        self._heartbeat: Heartbeat | None = None
        if client.connection_pool.connection_kwargs.get("socket_timeout", 0) is None:
            logger.warning(
                "the client has no socket_timeout: a Redis that falls silent would be waited for without end"
            )

    def join(self) -> None:
        """Become a living member, or say again that this is one. One round trip.

        A dead incarnation under the same pod name is superseded once it has been silent for one beat. Raises
        `NameClash` before that, and when the other one lives. A crash after the call leaves a member that falls silent.
        """
        with self._lock:
            if self._given_up:
                self.member, self._given_up = new_member(self.settings.pod), False
            owed = self._owed
            held = [Take(number, 0, 0, b"", b"") for number in list(self._permits)]
            answer = self.operations.join(
                self.member,
                epoch=self._epoch,
                next_id=self._next_id,
                draining=self._draining,
                running=held,
                emptied=self._permits,
            )
            if isinstance(answer, Clash):
                message = (
                    f"pod {self.settings.pod!r} is taken in fleet {self.settings.fleet!r}: {answer.other} has beaten "
                    f"within {self.settings.beat_s:g} s; give each pod its own name, or wait if that one just died"
                )
                raise NameClash(message)
            if self._owed is owed:  # nothing was released meanwhile
                self._owed = None
            self._epoch, self._joined = answer.epoch, True
            self._standing = "draining" if self._draining else "living"

    def beat(self) -> Standing:
        """Tell that this pod lives; joins anew when the fleet had given it up. One round trip, two then.

        After that the permits from before are not valid any more (unless Redis lost its data: then they are held
        again). Raises `NameClash` when another process took the name meanwhile.
        """
        try:
            with self._lock:
                self._look()
                if self._standing == "lost" or self._owed is not None:
                    self.join()  # which drops what is not held any more, a permit that nobody got among it
                self._outage.over()
                return self._standing
        except FAILURES as error:
            self._lost_sight(error)
            raise

    def _look(self) -> None:
        """Beat, and learn how the fleet sees this member: somebody else may have drained it."""
        if not self._given_up:
            self._standing = self.operations.beat(self.member).standing
        self._given_up = self._given_up or self._standing == "lost"
        self._draining = self._draining or self._standing == "draining"
        if self._draining and self._standing == "living":  # our own DRAIN did not get through
            self._standing = self.operations.drain(self.member)

    def _lost_sight(self, error: Exception) -> None:
        self._outage.seen(error)
        if isinstance(error, ReadOnlyError):  # the next connection may lead to the new master
            self.operations.client.connection_pool.disconnect(inuse_connections=False)

    def _may_ask(self) -> bool:
        return self._outage.lets_ask(heartbeat=self._heartbeat is not None)

    def _without_redis(self, lane: Lane) -> Permit | None:
        if self.settings.on_redis_error == "deny":
            return None
        self._outage.uncounted += 1
        return Permit(self, 0, lane, counted=False)

    def drain(self) -> None:
        """Leave the count of the living and get no more permits; those held stay valid while this pod beats."""
        with self._lock:
            self._draining = True
            if self._standing != "lost":
                self._standing = self.operations.drain(self.member)

    def leave(self) -> None:
        """End the membership; all permits end with it. Safe to repeat."""
        with self._lock:
            member, stands = self.member, self._standing != "lost"
            self._standing, self._given_up, self._joined = "lost", True, False
            self._permits.clear()
            if member and stands:
                self.operations.leave(member)

    def try_acquire(self, lane: Lane = "normal") -> Permit | None:
        """A permit, or None when the fleet is at capacity (or this pod drains). Never waits. One round trip.

        The normal lane is admitted while fewer than `capacity` other living pods are busy, the critical lane always.
        Raises `NotAMember` before `join`, and `NameClash` when another process took the name. When Redis fails: with
        `on_redis_error="allow"` an uncounted permit, with "deny" None; see the module's docstring. A crash while
        holding a permit frees it when the TTL is over.
        """
        if lane not in ("normal", "critical"):
            message = f"lane={lane!r}: allowed is normal or critical"
            raise ConfigurationError(message)
        if self._draining:
            return None
        if not self._may_ask():
            return self._without_redis(lane)
        with self._lock:
            if not self._may_ask():  # whoever had the lock has found out
                return self._without_redis(lane)
            try:
                return self._ask(lane)
            except FAILURES as error:
                self._owed, self._next_id = object(), self._next_id + 1
                self._lost_sight(error)
                return self._without_redis(lane)

    def _ask(self, lane: Lane) -> Permit | None:
        admitted = self.operations.acquire(self.member, self._next_id, critical=lane == "critical")
        if admitted is None:
            if not self._joined:
                message = f"{self.settings.pod} is not a member of fleet {self.settings.fleet!r}; join first"
                raise NotAMember(message)
            self.beat()  # it had been silent, Redis lost its data, or somebody drained it
            return None if self._draining else self._ask(lane)
        if self._heartbeat is None:
            self._outage.over()
        if not admitted:
            return None
        permit = Permit(self, self._next_id, lane, counted=True)
        self._permits[permit.id] = permit
        self._next_id += 1
        return permit

    def release(self, permit: Permit) -> bool:
        """Give a permit back. False, without effect, when it was not held any more. One round trip.

        While Redis fails it counts as given back, and is given back with the next beat that gets through.
        """
        if self._permits.pop(permit.id, None) is None:
            return False
        if self._may_ask():
            with self._lock:
                try:
                    return self.operations.ack(self.member, permit.id)
                except FAILURES as error:
                    self._lost_sight(error)
        self._owed = object()
        return True

    def holds(self, permit: Permit) -> bool:
        """Whether the fleet still counts this permit. One round trip; raises `redis.RedisError` when Redis fails."""
        return self.operations.holds(self.member, permit.id)

    def counts(self) -> Counts:
        """The fleet in numbers. One round trip; no membership needed."""
        return self.operations.counts()

    def __enter__(self) -> Self:
        """Join and beat in a thread until the block ends.

        While Redis fails the heartbeat joins as soon as it can. Raises `NameClash`, and what redis-py raises when the
        server refuses this client.
        """
        sent_s = time.monotonic()
        heartbeat = Heartbeat(self._stands, beat_s=self.settings.beat_s, ttl_s=self.settings.ttl_s)
        try:
            self.join()
            heartbeat.renewed(sent_s)
        except REFUSALS:
            raise
        except FAILURES as error:
            self._joined = True
            self._lost_sight(error)
        self._heartbeat = heartbeat
        heartbeat.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop beating and leave. While Redis fails nothing is sent: this member falls silent."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
        try:
            self.leave()
        except FAILURES as error:
            logger.warning("left fleet %r without a word: %s", self.settings.fleet, error)

    def _stands(self) -> bool:
        try:
            return self.beat() != "lost"
        except NameClash as clash:
            logger.error("%s", clash)  # noqa: TRY400 - one clear line, no traceback
            return False
