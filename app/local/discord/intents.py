"""Which intent an event needs. Pure.

The content of messages is not blanked where the intent for it is missing: an event is the same for every session.
"""

from __future__ import annotations

GUILDS = 1 << 0
GUILD_MEMBERS = 1 << 1
GUILD_PRESENCES = 1 << 8
MESSAGE_CONTENT = 1 << 15
PRIVILEGED = GUILD_MEMBERS | GUILD_PRESENCES | MESSAGE_CONTENT
KNOWN = sum(1 << bit for bit in (*range(17), 20, 21, 24, 25))
ORDINARY = KNOWN & ~PRIVILEGED
"""Those that a bot need not be granted."""

# Beginning of the name -> the intent in a guild, and in a direct message. The first that fits is meant.
_NEEDED: tuple[tuple[str, int, int], ...] = (
    ("GUILD_MEMBER", GUILD_MEMBERS, 0),
    ("GUILD_BAN", 1 << 2, 0),
    ("GUILD_AUDIT_LOG", 1 << 2, 0),
    ("GUILD_EMOJIS", 1 << 3, 0),
    ("GUILD_STICKERS", 1 << 3, 0),
    ("GUILD_SOUNDBOARD", 1 << 3, 0),
    ("GUILD_INTEGRATIONS", 1 << 4, 0),
    ("GUILD_SCHEDULED", 1 << 16, 0),
    ("GUILD_", GUILDS, 0),
    ("CHANNEL_PINS", GUILDS, 1 << 12),
    ("CHANNEL_", GUILDS, 0),
    ("THREAD_", GUILDS, 0),
    ("STAGE_INSTANCE", GUILDS, 0),
    ("INTEGRATION_", 1 << 4, 0),
    ("WEBHOOKS_", 1 << 5, 0),
    ("INVITE_", 1 << 6, 0),
    ("VOICE_", 1 << 7, 0),
    ("PRESENCE_", GUILD_PRESENCES, 0),
    ("MESSAGE_REACTION", 1 << 10, 1 << 13),
    ("MESSAGE_POLL", 1 << 24, 1 << 25),
    ("MESSAGE_", 1 << 9, 1 << 12),
    ("TYPING_", 1 << 11, 1 << 14),
    ("AUTO_MODERATION_ACTION", 1 << 21, 0),
    ("AUTO_MODERATION", 1 << 20, 0),
)


def needed(name: str, *, in_guild: bool) -> int:
    """The bit without which an event is not sent; 0 for one that every session gets."""
    for beginning, guild, direct in _NEEDED:
        if name.startswith(beginning):
            return guild if in_guild else direct
    return 0
