"""Which totals of shards Discord allows. Pure.

A bot has at most 2,500 guilds on a shard, or its connections are closed with 4011; Discord recommends about one shard
for 1,000. A large bot connects with the recommended number or a multiple of it, or is closed with 4010.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MOST = 16_384
"""No bot has so many shards: a number above is a mistake or a broken answer."""
GUILDS_RECOMMENDED, GUILDS_ALLOWED = 1_000, 2_500
SMALL_DAY = 1_000
"""Identifies that a bot may make in a day; a large one may make more."""


class Advice(NamedTuple):
    """What Discord says of a bot's size."""

    shards: int
    """The total that it recommends."""
    day_total: int
    """Identifies in a day."""
    concurrency: int

    @property
    def large(self) -> bool:
        """Whether the rules for large bots hold: they alone may identify more often, or several shards at once."""
        return self.concurrency > 1 or self.day_total > SMALL_DAY


def refusal(total: int, advice: Advice | None) -> str:
    """Why a person may not have this total; '' when they may. Without `advice` only what is absurd is refused."""
    if not 1 <= total <= MOST:
        return f"{total} shards are not allowed: a whole number from 1 to {MOST}"
    if advice is None:
        return ""
    if advice.large and total % advice.shards:
        return (
            f"{total} shards are not allowed for a large bot: a multiple of {advice.shards}, which Discord recommends"
        )
    least = math.ceil(advice.shards * GUILDS_RECOMMENDED / GUILDS_ALLOWED)
    if total < least:
        return (
            f"{total} shards are too few: Discord recommends {advice.shards} and closes connections of a bot with more "
            f"than {GUILDS_ALLOWED} guilds on a shard; at least {least}"
        )
    return ""
