"""What people in guilds do, as Discord's events: endless, made up from a seed. No I/O.

Events are unlike each other but for those that are equal in earnest: two TYPING_STARTs of one second, a reaction that
is added, removed, and added again. A product that takes such a pair for a repetition loses an event.
"""

from __future__ import annotations

import random
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EPOCH_MS = 1_420_070_400_000
USERS = 50
EMOJIS = ("\N{THUMBS UP SIGN}", "\N{PARTY POPPER}", "\N{HEAVY BLACK HEART}")
WORDS = ("release", "tonight", "who", "plays", "yes", "no", "later", "the", "raid", "begins", "ok", "why", "\N{OWL}")


class Said(NamedTuple):
    """One event."""

    guild: int
    """0: a direct message."""
    name: str
    data: dict[str, Any]


class Talk:
    """See the module."""

    def __init__(self, seed: int, now_s: Callable[[], float]) -> None:
        """`now_s`: seconds since 1970, for what events say of their time."""
        self._chance = random.Random(seed)
        self._now_s = now_s
        self._count = 0
        self._later: deque[Said] = deque()
        """What follows from an event that was said, a few events later."""
        self._messages: dict[int, str] = {}
        """The last message of each guild."""
        kinds = (
            (45, self._message),
            (15, self._typing),
            (8, self._reactions),
            (8, self._edit),
            (3, self._delete),
            (6, self._interaction),
            (5, self._voice),
            (3, self._channel),
        )
        self._weights, self._kinds = [weight for weight, _ in kinds], [kind for _, kind in kinds]

    def say(self, guilds: Sequence[int], *, direct: float = 0.0) -> Said:
        """The next event, in one of these guilds; with the probability `direct` in none."""
        if self._later and self._chance.random() < 1 / 3:
            return self._later.popleft()
        if not guilds or self._chance.random() < direct:
            return self._message(0) if self._chance.random() < 2 / 3 else self._typing(0)
        guild = self._chance.choice(guilds)
        (kind,) = self._chance.choices(self._kinds, self._weights)
        return kind(guild)

    def _id(self) -> str:
        self._count += 1
        return str((int(self._now_s() * 1000) - EPOCH_MS) << 22 | self._count % (1 << 22))

    def _time(self) -> str:
        self._count += 1
        return datetime.fromtimestamp(self._now_s() + self._count % 1000 / 1e6, UTC).isoformat()

    def _user(self) -> str:
        return str(900_000_000_000_000_000 + self._chance.randrange(USERS))

    def _where(self, guild: int) -> dict[str, Any]:
        return {"guild_id": str(guild), "channel_id": str(guild + 2)} if guild else {"channel_id": self._user()}

    def _member(self, guild: int, user: str) -> dict[str, Any]:
        if not guild:
            return {}
        return {"member": {"roles": [str(guild)], "nick": None, "deaf": False, "mute": False, "user": {"id": user}}}

    def _message(self, guild: int) -> Said:
        message, user = self._id(), self._user()
        self._messages[guild] = message
        data: dict[str, Any] = {
            "id": message,
            **self._where(guild),
            "author": {"id": user, "username": f"user{user[-2:]}", "bot": False},
            **self._member(guild, user),
            "content": " ".join(self._chance.choices(WORDS, k=self._chance.randint(1, 12))),
            "timestamp": self._time(),
            "edited_timestamp": None,
            "type": 0,
            "attachments": [],
            "embeds": [],
            "mentions": [],
            "nonce": message,
        }
        return Said(guild, "MESSAGE_CREATE", data)

    def _typing(self, guild: int) -> Said:
        user = self._user()
        data = {"user_id": user, "timestamp": int(self._now_s()), **self._where(guild), **self._member(guild, user)}
        said = Said(guild, "TYPING_START", data)
        if self._chance.random() < 1 / 3:
            self._later.append(said)
        return said

    def _reactions(self, guild: int) -> Said:
        user = self._user()
        emoji = {"id": None, "name": self._chance.choice(EMOJIS)}
        message = self._messages.get(guild) or self._id()
        data = {"user_id": user, **self._where(guild), "message_id": message, "emoji": emoji, "burst": False, "type": 0}
        added = Said(guild, "MESSAGE_REACTION_ADD", {**data, **self._member(guild, user)})
        removed = Said(guild, "MESSAGE_REACTION_REMOVE", data)
        self._later.extend((removed, added, removed)[: self._chance.randrange(4)])
        return added

    def _edit(self, guild: int) -> Said:
        message = {"id": self._messages.get(guild) or self._id(), **self._where(guild)}
        if self._chance.random() < 2 / 3:
            edited = {"content": self._chance.choice(WORDS), "edited_timestamp": self._time()}
            return Said(guild, "MESSAGE_UPDATE", {**message, **edited})
        # Discord has looked at the links of a message, and then at one more: nobody has edited it.
        embeds = [{"type": "link", "url": f"https://example.invalid/{word}"} for word in (self._id(), self._id())]
        found = [
            Said(guild, "MESSAGE_UPDATE", {**message, "embeds": embeds[:n], "edited_timestamp": None}) for n in (1, 2)
        ]
        self._later.append(found[1])
        return found[0]

    def _delete(self, guild: int) -> Said:
        return Said(
            guild, "MESSAGE_DELETE", {"id": self._messages.pop(guild, None) or self._id(), **self._where(guild)}
        )

    def _interaction(self, guild: int) -> Said:
        user, name = self._user(), self._chance.choice(WORDS)
        data = {
            "id": self._id(),
            "application_id": "4711",
            "type": 2,
            **self._where(guild),
            **self._member(guild, user),
            "token": f"interaction-{self._count}",
            "version": 1,
            "data": {"id": "1", "name": name, "type": 1},
        }
        return Said(guild, "INTERACTION_CREATE", data)

    def _voice(self, guild: int) -> Said:
        user = self._user()
        data = {
            **self._where(guild),
            "user_id": user,
            "session_id": self._id(),
            **self._member(guild, user),
            "self_mute": self._chance.random() < 1 / 2,
            "self_deaf": False,
        }
        return Said(guild, "VOICE_STATE_UPDATE", data)

    def _channel(self, guild: int) -> Said:
        topic = f"{self._chance.choice(WORDS)} {self._id()}"
        data = {"id": str(guild + 2), "guild_id": str(guild), "type": 0, "name": "general", "topic": topic}
        return Said(guild, "CHANNEL_UPDATE", data)
