# pyright: basic
"""Discord's events as messages of Celery: written by Celery's own writer, so that workers of any Celery app read them.

The writer publishes on a channel that keeps what it would send: the bytes that kombu's transport for Redis would push,
and where. The script that hands an event on pushes them.

A task's id says which event it is. Of what occurs once it is the same whoever heard it; of the rest the session and the
sequence are in it, so that a repetition is seen.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from kombu.connection import Connection
from kombu.messaging import Producer
from kombu.transport import virtual
from kombu.utils.json import dumps

from tasks.jobs import in_order
from tasks.shards.delivery.identity import guild_of, is_unique
from tasks.shards.delivery.parcels import Written
from throttle.keys import Keys

if TYPE_CHECKING:
    from celery import Celery

    from app.shards.routing import Routes
    from tasks.shards.gateway.session import Event

EVENTS = uuid.UUID("8c2d1f0e-6d0b-5a43-9a57-6f6b8f1f6d11")
"""Namespace of the ids."""


class KeepingChannel(virtual.Channel):
    """Keeps the last message instead of sending it."""

    kept: tuple[str, bytes] | None = None

    def take(self) -> tuple[str, bytes] | None:
        """What was kept: queue and message; it is forgotten."""
        kept, self.kept = self.kept, None
        return kept

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        self.kept = self.kept or (queue, dumps(message).encode())

    def _new_queue(self, queue: str, **_: Any) -> None:
        """There is none."""

    def _size(self, queue: str) -> int:
        del queue
        return 0


class KeepingTransport(virtual.Transport):
    """Of such channels."""

    Channel = KeepingChannel
    driver_type = driver_name = "keeping"


class MessageWriter:
    """Writes events as messages for an app's workers. For one thread."""

    def __init__(self, app: Celery, bot: str, routes: Routes, task: str) -> None:
        """`task`: the name of the task that has the events; it gets the event's name and its data."""
        self._app, self._bot, self._routes, self._task = app, bot, routes, task
        channel = Connection(transport=KeepingTransport).channel()
        self._channel: KeepingChannel = channel  # pyright: ignore[reportAttributeAccessIssue]
        self._producer = Producer(channel, auto_declare=False)
        self._prefix = str(app.conf.broker_transport_options.get("global_keyprefix", ""))
        self.fleet = Keys(app.throttle.settings.fleet, self._prefix).namespace()  # pyright: ignore[reportAttributeAccessIssue]
        self.ratio: float = app.throttle.settings.ratio  # pyright: ignore[reportAttributeAccessIssue]

    def wants(self, name: str) -> bool:
        """See `tasks.shards.delivery.parcels`."""
        return self._routes.queue_of(name) is not None

    def write(self, event: Event, identity: str) -> Written:
        """See `tasks.shards.delivery.parcels`."""
        queue = self._routes.queue_of(event.name)
        if queue is None:
            raise ValueError(f"nobody wants {event.name}")
        task_id = self.id_of(event, identity)
        guild = guild_of(event.name, event.data)
        if not (guild and self._routes.in_order(event.name)):
            key, message = self._written(self._task, task_id, [event.name, event.data], queue)
            return Written(key, message)
        waiting = json.dumps({"task": self._task, "id": task_id, "args": [event.name, event.data]}).encode()
        owner = str(uuid.uuid5(EVENTS, f"line {task_id}"))
        key, starter = self._written(in_order.TASK, owner, [self._bot, str(guild)], queue)
        return Written(key, waiting, starter, owner)

    def id_of(self, event: Event, identity: str) -> str:
        """The id of the task for an event."""
        which = identity if is_unique(identity) else f"{identity} {event.session_id} {event.sequence}"
        return str(uuid.uuid5(EVENTS, f"{self._bot} {which}"))

    def _written(self, task: str, task_id: str, arguments: list[Any], queue: str) -> tuple[str, bytes]:
        self._channel.take()
        self._app.send_task(
            task,
            arguments,
            task_id=task_id,
            queue=queue,
            producer=self._producer,
            ignore_result=True,
            add_to_parent=False,
            retry=False,
        )
        kept = self._channel.take()
        if kept is None:
            raise ValueError(f"a message for queue {queue!r} goes nowhere")
        return self._prefix + kept[0], kept[1]
