"""What makes an event of one session the same as one of another: told by what Discord's events carry. Pure.

A *unique* identity occurs once, ever: a message is created once, an interaction comes once. Others come again: a
reaction is added, removed and added, somebody types twice. Which kind it is stands in the first character.

No sequence is in it (each session counts for itself), and nothing that a session alone knows.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

UNIQUE, AGAIN = "=", "~"
DIGEST_BYTES = 12
REACTIONS = ("MESSAGE_REACTION_ADD", "MESSAGE_REACTION_REMOVE")
ONCE = (
    "MESSAGE_CREATE",
    "INTERACTION_CREATE",
    "MESSAGE_DELETE",
    "THREAD_DELETE",
    "CHANNEL_DELETE",
    "GUILD_ROLE_DELETE",
)
"""Told by the id in it: what is created or deleted with an id of its own is so once."""


def identity(name: str, data: Mapping[str, Any]) -> str:
    """The identity of an event: a short text without spaces."""
    told = _TELLS.get(name, _anything)(name, data) or _anything(name, data)
    kind, parts = told
    return kind + blake2b(_canonical([name, *parts]), digest_size=DIGEST_BYTES).hexdigest()


def is_unique(identity_: str) -> bool:
    """Whether it occurs once, ever."""
    return identity_.startswith(UNIQUE)


def guild_of(name: str, data: Mapping[str, Any]) -> int:
    """The guild that an event belongs to; 0 for none, as a direct message has."""
    told = data.get("id") if name in ("GUILD_CREATE", "GUILD_UPDATE", "GUILD_DELETE") else data.get("guild_id")
    return int(told) if is_snowflake(told) else 0


def is_snowflake(value: object) -> TypeGuard[str]:
    """Whether this is an id as Discord writes it: at most 20 digits in a text."""
    return isinstance(value, str) and 0 < len(value) <= 20 and value.isascii() and value.isdigit()  # noqa: PLR2004


_Told = tuple[str, list[Any]]


def _once(_: str, data: Mapping[str, Any]) -> _Told | None:
    told = data.get("id") or data.get("role_id")
    return (UNIQUE, [told]) if is_snowflake(told) else None


def _edit(_: str, data: Mapping[str, Any]) -> _Told | None:
    """An edit by its author has a time, which those repeat that only bring an embed. Others have contents alone."""
    at = data.get("edited_timestamp")
    return (AGAIN, [data["id"], at]) if is_snowflake(data.get("id")) and isinstance(at, str) else None


def _reaction(_: str, data: Mapping[str, Any]) -> _Told | None:
    emoji, message, user = data.get("emoji"), data.get("message_id"), data.get("user_id")
    if not (is_snowflake(message) and is_snowflake(user) and isinstance(emoji, dict)):
        return None
    return AGAIN, [message, user, emoji.get("id"), emoji.get("name"), data.get("burst"), data.get("type")]


def _anything(_: str, data: Mapping[str, Any]) -> _Told:
    return AGAIN, [_digest(data)]


def _digest(data: Mapping[str, Any]) -> str:
    return blake2b(_canonical(data), digest_size=DIGEST_BYTES).hexdigest()


def _canonical(data: object) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), default=repr).encode("utf-8", "surrogatepass")


_TELLS: dict[str, Callable[[str, Mapping[str, Any]], _Told | None]] = {
    **dict.fromkeys(ONCE, _once),
    **dict.fromkeys(REACTIONS, _reaction),
    "MESSAGE_UPDATE": _edit,
}
