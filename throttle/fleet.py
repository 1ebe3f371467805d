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
of the package docstring. A pod counts once, however many permits it has. Nothing is retried here: errors of Redis reach
the caller, but for `try_acquire`, whose policy `on_redis_error` says.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from redis.exceptions import RedisError

from throttle.errors import ConfigurationError, NameClash, NotAMember
from throttle.heartbeat import Heartbeat
from throttle.keys import Keys
from throttle.scripts import Clash, Counts, Operations, Standing, Take
from throttle.settings import OnRedisError, load_settings

if TYPE_CHECKING:
    from types import TracebackType

    import redis

logger = logging.getLogger(__name__)

Lane = Literal["normal", "critical"]


def new_member(pod: str) -> str:
    """A new incarnation of a pod: its name and a boot id that nobody had before."""
    return f"{pod}#{os.urandom(4).hex()}"


@dataclass(slots=True)
class Permit:
    """The right to do one piece of work. A context manager that releases itself."""

    fleet: Fleet = field(repr=False)
    id: int
    lane: Lane
    counted: bool
    """False: given while Redis was away under `on_redis_error="allow"`; nobody counts it."""

    def release(self) -> bool:
        """Give it back, see `Fleet.release`."""
        return self.fleet.release(self)

    def is_valid(self) -> bool:
        """Whether the fleet still counts it: False once this member was taken for dead. One round trip."""
        return self.counted and self.fleet.holds(self)

    def __enter__(self) -> Self:
        """Nothing: the permit is held already."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Release, whatever happened."""
        self.release()


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
        self._given_up = True  # whether the fleet said that it does not know the member
        self._permits: dict[int, Permit] = {}
        self._draining = False
        self._unsure = False  # whether the last answer to ACQUIRE was lost
        self._lock = threading.RLock()
        self._heartbeat: Heartbeat | None = None

    def join(self) -> None:
        """Become a living member, or say again that this is one. One round trip.

        A dead incarnation under the same pod name is superseded once it has been silent for one beat. Raises
        `NameClash` before that, and when the other one lives. A crash after the call leaves a member that falls silent.
        """
        with self._lock:
            if self._given_up:
                self.member, self._given_up = new_member(self.settings.pod), False
            held = [Take(number, 0, 0, b"", b"") for number in self._permits]
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
            self._epoch = answer.epoch
            self._standing = "draining" if self._draining else "living"

    def beat(self) -> Standing:
        """Tell that this pod lives; joins anew when the fleet had given it up. One round trip, two then.

        After that the permits from before are not valid any more (unless Redis lost its data: then they are held
        again). Raises `NameClash` when another process took the name meanwhile.
        """
        with self._lock:
            self._look()
            if self._standing == "lost":
                self.join()
            if self._unsure:  # a permit that nobody got must not keep this pod busy
                self.operations.ack(self.member, self._next_id)
                self._unsure = False
            return self._standing

    def _look(self) -> None:
        """Beat, and learn how the fleet sees this member: somebody else may have drained it."""
        if not self._given_up:
            self._standing = self.operations.beat(self.member).standing
        self._given_up = self._given_up or self._standing == "lost"
        self._draining = self._draining or self._standing == "draining"

    def drain(self) -> None:
        """Leave the count of the living and get no more permits; those held stay valid while this pod beats."""
        with self._lock:
            self._draining = True
            if self._standing != "lost":
                self._standing = self.operations.drain(self.member)

    def leave(self) -> None:
        """End the membership; all permits end with it. Safe to repeat."""
        with self._lock:
            if self.member and self._standing != "lost":
                self.operations.leave(self.member)
            self._standing, self._given_up = "lost", True
            self._permits.clear()

    def try_acquire(self, lane: Lane = "normal") -> Permit | None:
        """A permit, or None when the fleet is at capacity (or this pod drains). Never waits. One round trip.

        The normal lane is admitted while fewer than `capacity` other living pods are busy, the critical lane always.
        Raises `NotAMember` when the fleet does not know this member (join, or wait for the next beat). When Redis
        fails: with `on_redis_error="allow"` an uncounted permit, with "deny" None. A crash while holding a permit frees
        it when the TTL is over.
        """
        if lane not in ("normal", "critical"):
            message = f"lane={lane!r}: allowed is normal or critical"
            raise ConfigurationError(message)
        with self._lock:
            if self._draining:
                return None
            try:
                admitted = self.operations.acquire(self.member, self._next_id, critical=lane == "critical")
            except (RedisError, OSError) as error:
                logger.warning("permit %s without Redis (%s)", self.settings.on_redis_error, error)
                self._unsure = True
                return Permit(self, 0, lane, counted=False) if self.settings.on_redis_error == "allow" else None
            self._unsure = False  # the same id was asked again and answered
            if admitted is None:
                self._look()
                if self._draining:
                    return None
                if self._standing == "living":  # it had been silent and is counted again
                    return self.try_acquire(lane)
                message = (
                    f"{self.member or self.settings.pod} is not a member of fleet {self.settings.fleet!r}; join first"
                )
                raise NotAMember(message)
            if not admitted:
                return None
            permit = Permit(self, self._next_id, lane, counted=True)
            self._permits[permit.id] = permit
            self._next_id += 1
            return permit

    def release(self, permit: Permit) -> bool:
        """Give a permit back. False, without effect, when it was not held any more. One round trip."""
        with self._lock:
            if self._permits.pop(permit.id, None) is None:
                return False
            return self.operations.ack(self.member, permit.id)

    def holds(self, permit: Permit) -> bool:
        """Whether the fleet still counts this permit. One round trip."""
        return self.operations.holds(self.member, permit.id)

    def counts(self) -> Counts:
        """The fleet in numbers. One round trip; no membership needed."""
        return self.operations.counts()

    def __enter__(self) -> Self:
        """Join and beat in a thread until the block ends."""
        sent_s = time.monotonic()
        self.join()
        self._heartbeat = Heartbeat(self._stands, beat_s=self.settings.beat_s, ttl_s=self.settings.ttl_s)
        self._heartbeat.renewed(sent_s)
        self._heartbeat.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop beating and leave."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self.leave()

    def _stands(self) -> bool:
        try:
            return self.beat() != "lost"
        except NameClash as clash:
            logger.error("%s", clash)  # noqa: TRY400 - one clear line, no traceback
            return False
