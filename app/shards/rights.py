"""What the shards need of a user of Redis beyond what every worker needs, and the look for what is missing.

A script whose command is refused half way has done the half before. So a worker looks before it takes part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.shards.rounds import EXCHANGE
from throttle import rights
from throttle.errors import RedisRefused
from throttle.rights import KEY
from throttle.worker.connecting import PRIORITY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.shards.keys import Keys
    from throttle.scripts import Operations

SCRIPTED = (
    ("DECR", KEY), ("DEL", KEY), ("HGETALL", KEY), ("HMGET", KEY, "f"), ("DEL", KEY), ("LINDEX", KEY, "0"),
    ("LPOP", KEY), ("TYPE", KEY),
)  # fmt: skip
"""Commands of the shards' scripts that no other script has, with words that make them valid."""


def missing(operations: Operations, keys: Keys, queues: Sequence[str] = ()) -> list[str]:
    """ACL rules that the user of `operations` (the fleet's) lacks to hold a bot's shards. Some fifty round trips.

    `queues`: where events go, also those that this worker does not take from.

    Raises:
        redis.RedisError: another failure than a missing right.
    """
    changed, probe = keys.changed(), keys.namespace() + "probe"
    rounds = [EXCHANGE, EXCHANGE + PRIORITY]  # nothing is in them, and kombu looks
    reached = [probe, *rounds, *(operations.keys.prefix + queue for queue in queues)]
    return rights.missing(operations, keys=reached, hears=[changed], publishes=[changed], scripted=SCRIPTED)


def check(operations: Operations, keys: Keys, queues: Sequence[str], where: str) -> None:
    """Raises `RedisRefused` with what is missing; `where` is the address that it names."""
    if lacks := missing(operations, keys, queues):
        connection: dict[str, Any] = operations.client.connection_pool.connection_kwargs
        raise RedisRefused(
            f"Redis at {where} refuses user {connection.get('username') or 'default'!r} what shards need; missing: "
            f"{' '.join(lacks)} (all that is needed: docs/how-to/secure-redis.md)"
        )
