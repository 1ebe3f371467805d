# pyright: basic
"""kombu's prefetch credit, and the way of an acknowledgement from a message to the driver.

On a taking channel kombu only counts: how many messages are delivered and not acknowledged. What becomes of them is the
driver's. On a plain channel all is kombu's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import redis
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual

from throttle.worker import vocabulary as v

if TYPE_CHECKING:
    from throttle.worker.take import TakingChannel

logger = logging.getLogger(__name__)


def take_id(delivery_tag: Any) -> int | None:
    """The take id in a delivery tag, or None when it is a tag of kombu's (a UUID): a broadcast, a plain channel."""
    tag = str(delivery_tag)
    return int(tag) if tag.isdecimal() and len(tag) < 20 else None  # noqa: PLR2004 - a UUID has 32 digits


class QoS(kombu_redis.QoS):
    """Counts the credit as kombu does; what happens to a message is the driver's."""

    channel: TakingChannel
    _delivered: dict[str, Any]

    def can_consume(self) -> bool:
        """Credit for one more; an answer under way is always read, since it may hold a message."""
        return self.channel.waits or super().can_consume()

    def append(self, message: Any, delivery_tag: str) -> None:
        """Count a delivered message. A taken one is held already."""
        if self.channel.driver is None:
            super().append(message, delivery_tag)
        else:
            self.channel.delivered = True
            virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge."""
        channel, driver, number = self.channel, self.channel.driver, take_id(delivery_tag)
        if driver is None:
            super().ack(delivery_tag)
        elif number is None:
            self.forget(delivery_tag)
        else:
            driver.feed(v.Acked(number, channel.worker.runs(number), channel.consumes))

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - kombu's signature
        """Reject: back to the queue, or to the dead letters."""
        driver, number = self.channel.driver, take_id(delivery_tag)
        if driver is None:
            super().reject(delivery_tag, requeue)
        elif number is None:
            self.forget(delivery_tag)
        else:
            driver.feed(v.Rejected(number, requeue))

    def forget(self, delivery_tag: str) -> None:
        """Give the credit of a message back, once."""
        if delivery_tag in self._delivered:
            virtual.QoS.ack(self, delivery_tag)

    def restore_visible(self, *args: Any, **options: Any) -> None:
        """Do nothing on a taking channel: redelivery follows the life of the member, not time."""
        if self.channel.driver is None:
            try:
                super().restore_visible(*args, **options)
            except redis.OutOfMemoryError as error:  # it would keep a worker from connecting, for nothing of weight
                logger.debug("kombu's look for unacknowledged messages was refused: %s", error)

    def restore_unacked(self, client: Any = None) -> None:
        """Only forget on a taking channel: LEAVE, or whoever notices our death, returns what is held."""
        if self.channel.driver is None:
            super().restore_unacked(client)
        else:
            self._delivered.clear()
