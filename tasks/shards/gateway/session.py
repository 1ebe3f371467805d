"""A shard, its session at Discord, and an event that came in it. Plain values.

A session outlives its sockets and its pod: whoever has these three resumes it, and Discord sends again what came after
`sequence`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Shard:
    """Which shard of which bot, and where it connects."""

    url: str
    """The gateway's main address, ws:// or wss://."""
    token: str = field(repr=False)
    intents: int
    shard: int
    total: int


class Session(NamedTuple):
    """What RESUME needs. Replaced, never changed."""

    id: str
    sequence: int
    """Of the last event that need not come again. A new session begins at 1, so it is kept with the id."""
    resume_url: str


class Event(NamedTuple):
    """One dispatch, as Discord sent it."""

    session_id: str
    sequence: int
    name: str
    """Of its kind, such as MESSAGE_CREATE."""
    data: Mapping[str, Any]
    raw_bytes: int
    """Length of the payload, inflated: what keeping it costs, roughly."""
