"""What a bot does with Discord's events: a small example, which counts the messages of each guild.

Every event comes as one task: its name as Discord gives it, and its data. Put your own bot in this one's place, or name
a task of yours in `SHARD_TASK`.

Celery delivers a task at least once: a pod that dies in it is followed by another. The id of an event's task is always
the same, so an effect that must happen once is tied to it, in one step with the effect.
"""
# pyright: basic

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from celery import shared_task
from redis.exceptions import RedisError

from throttle.errors import TemporaryError
from throttle.lua import evaluate
from throttle.worker import ownership

if TYPE_CHECKING:
    from celery import Task

SEEN_S = 86_400
"""How long the id of a counted event is remembered."""
COUNT = """
if redis.call('SET', KEYS[1], '', 'NX', 'EX', ARGV[2]) then redis.call('HINCRBY', KEYS[2], ARGV[1], 1) end
return redis.call('HGET', KEYS[2], ARGV[1])
"""
"""Counts once for each id, in one step."""
COUNT_SHA = hashlib.sha1(COUNT.encode(), usedforsecurity=False).hexdigest()


@shared_task(bind=True, ignore_result=True)
def gateway_event(self: Task, name: str, data: dict[str, Any]) -> int:
    """Count a message for its guild; other events are nothing to this bot.

    Returns:
        The messages of that guild so far, 0 where nothing is counted.

    Raises:
        TemporaryError: Redis was away; the event is tried again.
    """
    if name != "MESSAGE_CREATE":
        return 0
    fleet = ownership.operations(self.app)
    namespace = fleet.keys.namespace()
    keys = (f"{namespace}bot:seen:{self.request.id}", f"{namespace}bot:messages")
    command = ("EVALSHA", COUNT_SHA, len(keys), *keys, str(data.get("guild_id") or 0), SEEN_S)
    try:
        answer = evaluate(fleet.client, command, COUNT)
    except RedisError as error:
        raise TemporaryError(f"the message is not counted: {error}") from error
    return int(answer)
