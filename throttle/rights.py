"""What a user of Redis must be allowed, and the look for what is missing, before a worker starts.

Redis refuses a command only when it comes to it, and some come to it first when a pod has died. So the look tries all
that the operations and kombu use, on a key of the fleet that it removes again, and says in the words of `ACL SETUSER`
what is missing: `+command`, `~key`, `&channel`. It needs no right to look into the rules themselves.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from redis.exceptions import NoPermissionError, ResponseError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import redis

    from throttle.scripts import Operations

OPERATIONS = ("rights",)
KEY = "\0"
"""Stands for the key that is tried."""

SCRIPTED = (
    ("EXISTS", KEY), ("GET", KEY), ("HDEL", KEY, "f"), ("HEXISTS", KEY, "f"), ("HGET", KEY, "f"),
    ("HINCRBY", KEY, "f", "1"), ("HKEYS", KEY), ("HSET", KEY, "f", "1"), ("HVALS", KEY), ("INCR", KEY), ("LLEN", KEY),
    ("LMPOP", "1", KEY, "RIGHT"), ("LPUSH", KEY, "v"), ("PEXPIRE", KEY, "1000"), ("RPOP", KEY, "0"),
    ("RPUSH", KEY, "v"), ("DEL", KEY),
    ("SADD", KEY, "v"), ("SREM", KEY, "v"), ("SET", KEY, "v"), ("TIME",), ("XADD", KEY, "*", "f", "v"),
    ("XDEL", KEY, "1-1"), ("XLEN", KEY),
    ("XRANGE", KEY, "-", "+", "COUNT", "1"), ("ZADD", KEY, "1", "m"), ("ZCARD", KEY), ("ZCOUNT", KEY, "0", "1"),
    ("ZRANGE", KEY, "0", "0"), ("ZRANGEBYSCORE", KEY, "0", "1"), ("ZREM", KEY, "m"),
    ("ZREVRANGEBYSCORE", KEY, "1", "0"), ("ZSCORE", KEY, "m"), ("DEL", KEY),
)  # fmt: skip
"""Each command of the operations' scripts, with words that make it valid. The last one tidies up."""

DIRECT = (
    ("PING",), ("INFO", "server"), ("TIME",), ("HEXISTS", KEY, "f"), ("HINCRBY", KEY, "f", "1"), ("DEL", KEY),
    ("BRPOP", KEY, "0.01"), ("LPUSH", KEY, "v"), ("PEXPIRE", KEY, "1000"), ("DEL", KEY),
    ("SADD", KEY, "v"), ("SREM", KEY, "v"), ("SMEMBERS", KEY), ("DEL", KEY), ("SET", KEY, "v", "NX", "PX", "1000"),
    ("SCRIPT EXISTS", "0" * 40), ("ZREVRANGEBYSCORE", KEY, "1", "0"), ("DEL", KEY),
)  # fmt: skip
"""What the library and kombu send outside of scripts, beside what the look itself is made of."""

OURSELVES = ("EVALSHA", "SCRIPT LOAD", "MULTI", "EXEC", "PUBLISH", "PSUBSCRIBE", "PUNSUBSCRIBE")
DOORKEEPER = ("CLIENT TRACKING", "CLIENT CACHING")
"""Without these it does without, and says so: messages of producers without this library may wait a second."""


def commands() -> list[str]:
    """Every command that a worker needs, as an ACL rule names it: `script|load`."""
    names = {words[0] for words in (*SCRIPTED, *DIRECT)} | set(OURSELVES) | set(DOORKEEPER)
    return sorted(name.lower().replace(" ", "|") for name in names)


def missing(
    operations: Operations,
    *,
    keys: Sequence[str] = (),
    subscribes: Sequence[str] = (),
    publishes: Sequence[str] = (),
    hears: Sequence[str] = (),
    scripted: Sequence[Sequence[str]] = (),
) -> list[str]:
    """ACL rules that the client's user lacks. Some forty round trips, once.

    Args:
        operations: of the fleet; its client is that user's.
        keys: queues that are to be taken from, and what else is to be reached.
        subscribes: patterns that are subscribed to.
        publishes: channels that are published on (nothing is: the message is empty).
        hears: channels that are subscribed to by their names.
        scripted: further commands of scripts, with words that make them valid.

    Raises:
        redis.RedisError: another failure than a missing right.
    """
    client, own = operations.client, operations.keys.namespace()
    key = own + "probe"
    found = [_refusal(client, words, key) for words in DIRECT]
    found += _in_transaction(client)
    if "+time" not in found:  # which every script begins with
        found += _in_script(operations, key, (*SCRIPTED, *scripted))
        found += [_on_key(operations, each) for each in keys if f"~{own}*" not in found]
    for channel in publishes:
        found += _on_channel(client, channel, ("PUBLISH", channel, ""))
    for pattern in subscribes:
        found += _on_channel(client, pattern, ("PSUBSCRIBE", pattern), ("PUNSUBSCRIBE", pattern))
    for channel in hears:
        found += _on_channel(client, channel, ("SUBSCRIBE", channel), ("UNSUBSCRIBE", channel))
    return sorted({rule for rule in found if rule})


def _rule(error: ResponseError, command: str, thing: str) -> str:
    """What is missing: the right to the command, or to what it was tried on."""
    return f"+{command.lower().replace(' ', '|')}" if " run " in str(error) else thing


def _refusal(client: redis.Redis, words: Sequence[str], key: str) -> str:
    try:
        client.execute_command(*[key if word == KEY else word for word in words])
    except NoPermissionError as error:
        return _rule(error, words[0], f"~{key.removesuffix('probe')}*")
    except ResponseError:  # it was let through, and did not like what it found
        return ""
    return ""


def _in_transaction(client: redis.Redis) -> list[str]:
    connection = cast("Any", client.connection_pool.get_connection())
    found: list[str] = []
    try:
        for name in ("multi", "exec"):
            try:
                connection.send_command(name)
                connection.read_response()
            except ResponseError as error:  # of EXEC it is another than of other commands
                found += [f"+{name}"] if f"'{name}'" in str(error) else []
    finally:
        client.connection_pool.release(connection)
    return found


def _in_script(operations: Operations, key: str, scripted: Sequence[Sequence[str]]) -> list[str]:
    tries = [json.dumps([key if word == KEY else word for word in words]) for words in (*scripted, ("DEL", KEY))]
    try:
        operations.load("rights")
    except NoPermissionError:
        return ["+script|load"]
    try:
        answers = cast("list[int]", operations.call("rights", "", (), *tries))
    except NoPermissionError as error:
        return [_rule(error, "EVALSHA", f"~{key.removesuffix('probe')}*")]
    refused = [words[0] for words, answer in zip(scripted, answers, strict=False) if not answer]
    return [f"+{name.lower()}" for name in refused]


def _on_key(operations: Operations, key: str) -> str:
    """Redis looks at the keys that a script is given before it runs it: to be read and written."""
    try:
        operations.call("rights", "", (key,))
    except NoPermissionError as error:
        return _rule(error, "EVALSHA", f"~{key}")
    return ""


def _on_channel(client: redis.Redis, channel: str, *tries: Sequence[str]) -> list[str]:
    """Each by a connection of its own: one that has subscribed is good for nothing else."""
    found: list[str] = []
    for words in tries:
        connection = cast("Any", client.connection_pool.get_connection())
        try:
            connection.send_command(*words)
            connection.read_response(push_request=True)
        except NoPermissionError as error:
            found.append(_rule(error, words[0], f"&{channel}"))
        finally:
            connection.disconnect()
            client.connection_pool.release(connection)
    return found
