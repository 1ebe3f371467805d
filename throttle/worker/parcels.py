# pyright: basic
"""A broker connection that publishes nothing: it hands over what kombu would have sent, for a script to send.

Celery and kombu make the message: routes, headers, serializer, compression, priority, the queues that an exchange leads
to. Where kombu writes it to Redis, it is kept instead, as keys and messages. Declarations are written as always.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from kombu.utils.json import dumps

from throttle.schedule import Messages

if TYPE_CHECKING:
    from collections.abc import Callable


def open_connection(app: Any) -> Any:
    """The broker's connection for parcels, as the app configures it. Nothing is sent before it is used; tried once."""
    made = app.connection_for_write(transport_options={"max_retries": 0, "errback": None})
    ours = made.get_transport_cls
    made.get_transport_cls = lambda: keeping(ours())
    return made


def collect(app: Any, connection: Any, publish: Callable[[], Any]) -> Messages:
    """What `publish` publishes on the connection. Raises what it raises, and ValueError where it leads nowhere."""
    channel = connection.default_channel
    if not channel.knows_exchanges:  # or kombu takes one of topics for a direct one, and the message leads nowhere
        for queue in app.amqp.queues.values():
            if queue.exchange.name:
                queue.exchange(channel).declare()
        channel.knows_exchanges = True
    channel.queued, channel.broadcast = [], []
    publish()
    if not channel.queued and not channel.broadcast:
        message = "no queue is bound to where it goes"
        raise ValueError(message)
    return Messages(tuple(channel.queued), tuple(channel.broadcast))


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
