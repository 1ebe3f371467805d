"""The stores of checkpoints that the conformance tests run on, each with what a test needs to spoil it."""

from __future__ import annotations

import base64
import itertools
import uuid
from typing import TYPE_CHECKING, Protocol, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks.checkpoints.etcd_store import EtcdStore, b64
from tasks.checkpoints.redis_store import RedisStore
from throttle.keys import Keys

if TYPE_CHECKING:
    from app.local.guard import Process
    from app.local.servers import Server
    from tasks.checkpoints import CheckpointStore
    from tests.support.etcd import Etcd

ANSWER_S = 1.0


class Place(Protocol):
    """A server of checkpoints, seen from outside."""

    def store(self, ttl_s: float = 60.0) -> CheckpointStore:
        """Another client of the same fleet, as another process has it."""
        ...

    def spoil(self, task_id: str, content: bytes) -> None:
        """Put this in the place of what was saved for the task, fence and all left as they are."""
        ...

    def lose(self) -> None:
        """Forget everything, as a server does that comes back empty."""
        ...

    def names(self) -> list[str]:
        """Names of all keys of the fleet; one that would stay for ever ends in `!`."""
        ...


class InRedis:
    """See `Place`."""

    def __init__(self, server: Server) -> None:
        """A fleet of its own on this server."""
        self.server = server
        self.keys = Keys(uuid.uuid4().hex)
        self.client = self._client()

    @property
    def process(self) -> Process:
        """Of the server."""
        return self.server.process

    def store(self, ttl_s: float = 60.0) -> RedisStore:
        """See `Place`."""
        return RedisStore(self._client(), self.keys, ttl_s)

    def spoil(self, task_id: str, content: bytes) -> None:
        """See `Place`."""
        self.client.hset(self.keys.checkpoint(task_id), "context", content)

    def lose(self) -> None:
        """See `Place`."""
        self.client.flushall()

    def _client(self) -> redis.Redis:
        """As the fleet's own: it tries once, and waits no longer than it is told."""
        return redis.Redis(
            port=self.server.port,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            retry=Retry(NoBackoff(), 0),
        )

    def names(self) -> list[str]:
        """See `Place`."""
        keys = [key.decode() for key in cast("list[bytes]", self.client.keys(self.keys.namespace() + "*"))]
        return sorted(f"{key}{'!' if self.client.pttl(key) < 0 else ''}" for key in keys)


class InEtcd:
    """See `Place`."""

    def __init__(self, server: Etcd) -> None:
        """A fleet of its own on this server."""
        self.server = server
        self.keys = Keys(uuid.uuid4().hex)
        self.asking = self.store()

    @property
    def process(self) -> Process:
        """Of the server."""
        return self.server.process

    def store(self, ttl_s: float = 60.0) -> EtcdStore:
        """See `Place`."""
        return EtcdStore([("127.0.0.1", self.server.port)], self.keys, ttl_s, answer_s=ANSWER_S)

    def spoil(self, task_id: str, content: bytes) -> None:
        """See `Place`."""
        key = b64(self.keys.checkpoint(task_id))
        head = b'{"task": "t", "status": "running", "progress": 0.5}\n'
        self.asking.ask("kv/put", {"key": key, "value": b64(head + content), "ignore_lease": True})

    def lose(self) -> None:
        """See `Place`."""
        self.asking.ask("kv/deleterange", {"key": b64("\0"), "range_end": b64("\0")})

    def names(self) -> list[str]:
        """See `Place`."""
        end = self.keys.namespace()[:-1] + ";"
        found = self.asking.ask("kv/range", {"key": b64(self.keys.namespace()), "range_end": b64(end)}).get("kvs", [])
        return sorted(base64.b64decode(e["key"]).decode() + ("" if e.get("lease", "0") != "0" else "!") for e in found)


numbers = itertools.count(1)


def new_id() -> str:
    """A task id that no other test has."""
    return f"task-{next(numbers)}-{uuid.uuid4().hex[:6]}"
