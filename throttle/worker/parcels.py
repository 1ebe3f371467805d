# pyright: basic
"""Messages that are made and not published: what kombu would have sent is handed over, for a script to send.

Celery and kombu make the message: routes, headers, serializer, compression, priority, the queues that an exchange leads
to. Where kombu writes it to Redis, it is kept instead, as keys and messages. Declarations are written as always.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from celery import beat
from celery.result import denied_join_result
from kombu.utils.json import dumps

from throttle.schedule import Messages
from throttle.worker.dues import moment

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from throttle.worker.entries import Entry

TASK_IDS = uuid.UUID("5f0d5a34-5d0e-4d0a-9d3c-6e0a5f3a6a57")


class Parcels:
    """Makes the messages of one app's entries, over a connection of its own that is opened when it is first needed."""

    def __init__(self, app: Any, fleet: str, producer_class: Any) -> None:
        """Nothing is sent."""
        self._app, self._fleet, self._producer_class = app, fleet, producer_class

    def make(self, entry: Entry, due_us: int, now: datetime) -> Messages:
        """What Celery publishes for an entry that is due. Its times go by `now`, the server's, not by this pod's clock.

        Raises what Celery and kombu raise, and ValueError where the message leads nowhere.
        """
        options = dict(entry.options)
        if isinstance(options.get("expires"), (int, float)):
            options["expires"] = now + timedelta(seconds=options["expires"])
        if isinstance(options.get("countdown"), (int, float)):
            options["eta"] = now + timedelta(seconds=options.pop("countdown"))
        told = {"celery_beat_task": True, "beat_entry": entry.name, "beat_due": moment(due_us).isoformat()}
        options["headers"] = {**(options.get("headers") or {}), **told}
        options.setdefault("task_id", str(uuid.uuid5(TASK_IDS, f"{self._fleet} {entry.name} {due_us}")))
        args, kwargs = beat._evaluate_entry_args(entry.args), beat._evaluate_entry_kwargs(entry.kwargs)
        task = self._app.tasks.get(entry.task)

        def publish() -> None:
            with denied_join_result():  # or the result back end listens for each result, for as long as beat lives
                if task is None:
                    self._app.send_task(entry.task, args, kwargs, producer=self._producer, retry=False, **options)
                else:
                    task.apply_async(args, kwargs, producer=self._producer, retry=False, **options)

        return self._collect(publish)

    def drop(self) -> None:
        """Give the connection up, whatever ails it; the next message opens another."""
        self.__dict__.pop("_producer", None)
        connection = self.__dict__.pop("_connection", None)
        if connection is not None:
            connection.collect()

    def _collect(self, publish: Callable[[], Any]) -> Messages:
        channel = self._connection.default_channel
        if not channel.knows_exchanges:  # or kombu takes one of topics for a direct one, and the message leads nowhere
            for queue in self._app.amqp.queues.values():
                if queue.exchange.name:
                    queue.exchange(channel).declare()
            channel.knows_exchanges = True
        channel.queued, channel.broadcast = [], []
        publish()
        if not channel.queued and not channel.broadcast:
            message = "no queue is bound to where it goes"
            raise ValueError(message)
        return Messages(tuple(channel.queued), tuple(channel.broadcast))

    @cached_property
    def _connection(self) -> Any:
        made = self._app.connection_for_write(transport_options={"max_retries": 0})  # tried once: beat asks again
        configured = made.get_transport_cls
        made.get_transport_cls = lambda: keeping(configured())
        return made

    @cached_property
    def _producer(self) -> Any:
        return self._producer_class(self._connection, auto_declare=False)


@cache
def keeping(transport_class: Any) -> type[Any]:
    """The transport with a channel that keeps what it is given to publish."""

    class Keeping(transport_class.Channel):
        knows_exchanges = False
        queued: list[tuple[str, str]]
        broadcast: list[tuple[str, str]]

        def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
            key = self._q_for_pri(queue, self._get_message_priority(message, reverse=False))
            self.queued.append((self.global_keyprefix + key, dumps(message)))

        def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **_: Any) -> None:
            payload = dumps(message)
            topics = self._get_publish_topics(exchange, routing_key)
            self.broadcast += [(self.global_keyprefix + topic, payload) for topic in topics]

    return type("KeepingTransport", (transport_class,), {"Channel": Keeping})
