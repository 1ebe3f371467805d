"""Everything Headroom raises, as one tree.

    HeadroomError
    ├── ConfigurationError     a setting, an argument or an app that cannot work (also a ValueError)
    ├── NameClash              another living incarnation beats under this pod's name
    ├── NotAMember             the fleet does not know this member (any more); join again
    ├── TemporaryError         for tasks to raise: this passes, try it again (after a pause)
    ├── PermanentError         for tasks to raise: no retry mends this
    ├── QueueUnusable          the key of a queue is of another type: nothing was published
    ├── WorkerNotReached       no worker of this pod answers at its control address
    └── RedisUnusable
        ├── RedisUnreachable   nobody answered in the time allowed
        ├── RedisRefused       the server answered, but not to us (password, access rights)
        └── RedisTooOld        the server lacks what the scripts need

The text of each is one line that says what was wrong, where, and what is allowed. Errors of Redis while the fleet is
at work are not translated: they stay `redis.RedisError`.
"""

from __future__ import annotations


class HeadroomError(Exception):
    """Base of all errors of Headroom."""


class ConfigurationError(HeadroomError, ValueError):
    """A setting, an argument or an app that cannot work."""


class NameClash(HeadroomError):
    """Another living incarnation beats under this pod's name; it was there first."""


class NotAMember(HeadroomError):
    """The fleet does not know this member (any more). Nothing was taken; join again."""


class TemporaryError(HeadroomError):
    """For a task to raise: what stands in its way passes, so it is tried again as its policy says."""

    def __init__(self, *args: object, after_s: float = 0.0) -> None:
        """`after_s`: seconds to wait at least, such as a service asked for."""
        super().__init__(*args)
        self.after_s = after_s


class PermanentError(HeadroomError):
    """For a task to raise: no retry mends this. The task has failed, and its message becomes a dead letter."""


class QueueUnusable(HeadroomError):
    """The key of a queue in Redis is no list, so nothing can be published there. Nothing was."""


class WorkerNotReached(HeadroomError):
    """No worker of this pod answers at its control address on this machine (in this container)."""


class RedisUnusable(HeadroomError):
    """Redis cannot serve a fleet."""


class RedisUnreachable(RedisUnusable):
    """Nobody answered at the address in the time allowed."""


class RedisRefused(RedisUnusable):
    """The server answered but refused us: a wrong password, or missing rights."""


class RedisTooOld(RedisUnusable):
    """The server is older than Redis 6.2 or Valkey 7.2."""
