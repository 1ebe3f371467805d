# pyright: basic
"""How a channel publishes: with PUT in place of LPUSH, which rings a waiting pod.

What goes kombu's own way although a queue takes it: queues with an expiry (kombu renews it with each message), and
batches. Nobody is rung for them; a waiting pod looks once a second.

Remote control leaves nothing behind: a reply to who has died expires (with kombu alone it stays for ever), and bindings
of queues that expire go when nobody has spoken of them for an hour (kombu keeps all of them while anybody uses one).

A message is published or not, as one step of the server. Where the answer was lost nobody knows: Celery publishes once
more. A queue whose key is no list takes none: the producer gets `QueueUnusable`, at once, since trying again is no use.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import redis
from kombu.transport import redis as kombu_redis
from kombu.utils.json import dumps
from redis.exceptions import NoPermissionError

from throttle.errors import QueueUnusable
from throttle.keys import Keys
from throttle.scripts import Operations, Rule
from throttle.worker import retries
from throttle.worker import vocabulary as v
from throttle.worker.broker import SturdyChannel

REPLY_MS = 60_000
"""How long an answer of remote control waits for who asked. By itself Celery waits a second for it."""


class PuttingChannel(SturdyChannel):
    """A channel that publishes with PUT."""

    from_transport_options = (*kombu_redis.Channel.from_transport_options, v.OPTION)

    headroom: dict[str, Any] = {}  # noqa: RUF012 - kombu sets transport options as attributes over class defaults
    _operations: Operations | None = None

    def operations(self) -> Operations:
        """The fleet's operations over this channel's own connections; kombu makes new ones after a fork."""
        if self._operations is None or self._operations.client.connection_pool is not self.pool:
            self._operations = self._make_operations()
        return self._operations

    def _make_operations(self) -> Operations:
        options = {
            "fleet": "default",
            "ratio": 0.8,
            "ttl_ms": 30000,
            "max_deliveries": 5,
            "journal": 0,
            **self.headroom,
        }
        keys = Keys(str(options["fleet"]), self.global_keyprefix)
        rule = Rule(**{name: options[name] for name in Rule._fields})
        return Operations(redis.Redis(connection_pool=self.pool), keys, rule)

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:
        queue = self._lane_of(queue, message)
        if "_publish_batch" in options or queue in self._expires:
            super()._put(queue, message, **options)
            return
        key = self._q_for_pri(queue, self._get_message_priority(message, reverse=False))
        if queue.endswith(".pidbox"):
            self._reply(key, dumps(message))
            return
        full = self.global_keyprefix + key
        try:
            self.operations().put(full, dumps(message))
        except redis.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            raise QueueUnusable(f"queue {queue!r}: nothing was published, {odd(full)}") from error

    def _reply(self, key: str, message: str) -> None:
        """Answer who asked by remote control. Who asked may have died, and nobody else would ever remove the answer."""
        with self.conn_or_acquire() as client, client.pipeline() as pipe:
            pipe.lpush(key, message)
            pipe.pexpire(key, REPLY_MS)
            pipe.execute()

    @property
    def _refresh_binding(self) -> Any:
        return self._bind

    def _bind(self, keys: list[str], args: list[Any], **_: Any) -> None:
        """In kombu's place: bind a queue that expires, and let those go that nobody has spoken of for their time."""
        table, deadlines = self.global_keyprefix + keys[0], keys[1]
        binding, exchange, ttl_ms = args
        seen = f"{self.global_keyprefix}_kombu.binding_seen.{exchange}"
        try:
            self.operations().bind(binding, exchange, keys=(table, deadlines, seen), ttl_ms=ttl_ms)
        except NoPermissionError:  # one who only watches, and has no right to the fleet's keys
            self._bind_only(keys=keys, args=args)

    @cached_property
    def _bind_only(self) -> Any:
        return self._create_client().register_script(kombu_redis.REFRESH_BINDING)

    def _lane_of(self, queue: str, message: dict[str, Any]) -> str:
        """The queue for a message: a retry may go to the first critical one instead of its own."""
        critical = self.headroom.get("critical", ())
        if not critical or queue in critical:
            return queue
        moves = retries.is_for_the_critical_lane(message, self.headroom.get("retry_lane", "normal"))
        return critical[0] if moves else queue


def odd(key: str) -> str:
    """What is wrong with the key of a queue that is no list, and what to do about it."""
    return f"the key {key!r} in Redis is no list; look with TYPE, then RENAME or DEL it"
