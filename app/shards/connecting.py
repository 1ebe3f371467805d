"""What holds the shards of a pod: connections to Discord, or simulated ones, as the settings say."""
# pyright: basic

from __future__ import annotations

import hashlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from app.shards.delivering import make_outbox
from tasks.shards.gateway.holder import Address, Bot, Holder
from tasks.shards.simulated import RedisSessions, Simulated

if TYPE_CHECKING:
    from celery import Celery

    from app.settings import Settings
    from tasks.shards.connection import Connections
    from tasks.shards.gateway_bot import GatewayBot
    from tasks.shards.operations import Operations
    from tasks.shards.rest import Rest

logger = logging.getLogger(__name__)


def credentials(settings: Settings) -> str:
    """What pods call the token and the intents that they connect with, without giving them away; '' without a token."""
    if settings.discord_token is None:
        return ""
    both = f"{settings.discord_token.get_secret_value()}\n{settings.discord_intents}"
    return hashlib.sha256(both.encode()).hexdigest()[:16]


def make_connections(app: Celery, settings: Settings, operations: Operations, address: Address) -> Connections:
    """What the driver of this pod opens and closes. Raises `ConfigurationError` for a callback that cannot be had."""
    if settings.shard_connections == "simulated" or settings.discord_token is None:
        return Simulated(RedisSessions(settings.redis_url, operations.keys))
    bot = Bot(settings.discord_token.get_secret_value(), settings.discord_intents)
    return Holder(bot, address, partial(make_outbox, app, settings, operations))


class Noting:
    """Asks Discord in each round, and notes where it says that shards connect."""

    def __init__(self, rest: Rest, address: Address, *, secure: bool) -> None:
        """`secure`: only an address with TLS is good enough, as that of the REST interface is."""
        self._rest, self._address, self._secure = rest, address, secure

    async def gateway_bot(self) -> GatewayBot:
        """As `Rest` does."""
        found = await self._rest.gateway_bot()
        if self._secure and not found.url.startswith("wss://"):
            logger.error("shards: Discord names a gateway without TLS, and the token does not go there")
        else:
            self._address.note(found.url)
        return found
