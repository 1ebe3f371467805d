"""The guilds of a bot: which there are, which are in an outage, to which shard each belongs, and how one looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST = 100_000_000_000 << 22
"""Ids are snowflakes, milliseconds above bit 22. These lie a millisecond apart, so that every shard has some."""


def shard_of(guild: int, total: int) -> int:
    """Discord's formula; 0 for what belongs to no guild."""
    return (guild >> 22) % total


class Guilds:
    """Changed at any time; who must hear of a change is the gateway's."""

    def __init__(self, count: int = 0) -> None:
        """So many, none in an outage."""
        self._available: dict[int, bool] = {}
        for number in range(count):
            self.add(FIRST + (number << 22) + number % 1000)

    def add(self, guild: int) -> None:
        """One more."""
        self._available[guild] = True

    def remove(self, guild: int) -> None:
        """One less; KeyError: it is none."""
        del self._available[guild]

    def set_available(self, guild: int, *, available: bool) -> None:
        """Begin or end an outage; KeyError: it is none."""
        if guild not in self._available:
            raise KeyError(guild)
        self._available[guild] = available

    def is_available(self, guild: int) -> bool:
        """Whether it is no other's, and in no outage."""
        return self._available.get(guild, False)

    def __contains__(self, guild: int) -> bool:
        """Whether the bot is in it."""
        return guild in self._available

    def __len__(self) -> int:
        """How many."""
        return len(self._available)

    @property
    def ids(self) -> Iterable[int]:
        """All of them, as they came."""
        return self._available.keys()

    def of(self, shard: int, total: int) -> list[int]:
        """Those of one shard."""
        return [guild for guild in self._available if shard_of(guild, total) == shard]


def created(guild: int) -> dict[str, Any]:
    """The data of a GUILD_CREATE."""
    return {
        "id": str(guild),
        "name": f"guild {guild >> 22}",
        "owner_id": str(guild + 1),
        "unavailable": False,
        "large": False,
        "member_count": 3,
        "joined_at": "2026-01-01T00:00:00.000000+00:00",
        "roles": [{"id": str(guild), "name": "@everyone", "permissions": "0", "position": 0}],
        "channels": [{"id": str(guild + 2), "type": 0, "name": "general", "position": 0}],
        "members": [],
        "threads": [],
        "presences": [],
        "voice_states": [],
    }
