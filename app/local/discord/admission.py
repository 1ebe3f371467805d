"""Who may IDENTIFY: token, shard, intents, the day's budget and the bucket, in Discord's order.

An IDENTIFY with the bot's token counts, whatever becomes of it. One too many ends every session and the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from app.local.discord.intents import KNOWN, PRIVILEGED
from app.local.discord.wire import Breach, Close

if TYPE_CHECKING:
    from app.local.discord.bot import Bot
    from app.local.discord.guilds import Guilds
    from app.local.discord.terms import Terms
    from app.local.discord.wire import Identify


class Admission:
    """The gate at Discord's side, of one bot."""

    def __init__(self, bot: Bot, terms: Terms, guilds: Guilds) -> None:
        """No bucket was used yet."""
        self._bot, self._terms, self._guilds = bot, terms, guilds
        self._used_s: dict[int, float] = {}

    def bucket(self, shard: int) -> int:
        """Whose IDENTIFYs it shares the interval with, of every total."""
        return shard % self._bot.concurrency

    def judge(self, asked: Identify, now_s: float) -> Literal["granted", "too soon", "overdrawn"]:
        """What becomes of an IDENTIFY. Raises `Breach`."""
        self.knows(asked.token)
        if not self._bot.identified():
            return "overdrawn"
        if not 0 <= asked.shard < asked.total or asked.total % self._terms.multiple:
            raise Breach(Close.INVALID_SHARD, f"shard [{asked.shard}, {asked.total}]")
        guilds = len(self._guilds.of(asked.shard, asked.total))
        if guilds > self._terms.guilds_per_shard:
            raise Breach(Close.SHARDING_REQUIRED, f"{guilds} guilds on shard [{asked.shard}, {asked.total}]")
        if asked.intents < 0 or asked.intents & ~KNOWN:
            raise Breach(Close.INVALID_INTENTS, f"intents {asked.intents}")
        if asked.intents & PRIVILEGED & ~self._terms.privileged:
            raise Breach(Close.DISALLOWED_INTENTS, f"intents {asked.intents}: not granted")
        bucket = self.bucket(asked.shard)
        used_s = self._used_s.get(bucket)
        if used_s is not None and now_s - used_s < self._terms.identify_every_s:
            return "too soon"
        self._used_s[bucket] = now_s
        return "granted"

    def knows(self, token: str) -> None:
        """Raises `Breach` for any token but the bot's."""
        if not self._bot.knows(f"Bot {token}"):
            raise Breach(Close.AUTHENTICATION_FAILED, "a wrong token")
