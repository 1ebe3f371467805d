"""Asks Discord in each round and tells the driver what it said: the loop between `rounds`, `rest` and `driver`.

A round in which Discord gives no usable answer is no vote, and is told in the log when that begins and when it ends. A
token that Discord does not know ends the loop: the pod goes on without a vote, and holds what it holds.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from tasks.shards.rest import DiscordAway, TokenRefused
from tasks.shards.vocabulary import Told
from throttle import events

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.shards.gateway_bot import GatewayBot
    from tasks.shards.rounds import VoteRounds

logger = logging.getLogger(__name__)


class Asks(Protocol):
    """What can be asked for Discord's recommendation: `rest.Rest`."""

    async def gateway_bot(self) -> GatewayBot:
        """As `Rest` does."""
        ...


async def vote(rounds: VoteRounds, discord: Asks, tell: Callable[[Told], object]) -> None:
    """Vote in each round until it is cancelled, or until the token is refused. `tell` is the driver's."""
    away = False
    while True:
        why = await rounds.wait()
        try:
            found = await discord.gateway_bot()
        except TokenRefused as error:
            events.emit(events.SHARD_ROUND, why, "refused")
            logger.error("shards: %s; this pod votes no more until it is started with another", error)  # noqa: TRY400
            return
        except DiscordAway as error:
            events.emit(events.SHARD_ROUND, why, "away")
            if not away:
                logger.warning("shards: %s; no vote until it can be", error)
            away = True
            continue
        if away:
            logger.info("shards: Discord answers again")
        away = False
        events.emit(events.SHARD_ROUND, why, "told")
        tell(Told(found.shards, found.max_concurrency, found.total, found.remaining, found.reset_after_ms))
