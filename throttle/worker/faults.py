# pyright: basic
"""Whose fault an error is, the broker's, which is away and comes back, or that of the message at hand; and its text."""

from __future__ import annotations

import traceback

import redis
from kombu.exceptions import OperationalError

AWAY = (redis.RedisError, OSError, OperationalError)
"""What Redis and kombu raise while the broker is away. kombu's own `connection_errors` have a KeyError among them."""

TEXT_BYTES = 4096
CUT = "[...]\n"


def shortened(text: str, limit: int = TEXT_BYTES) -> str:
    """The end of a text that is too long for a message's history: of a traceback, the error itself."""
    raw = text.strip().encode(errors="backslashreplace")
    if len(raw) <= limit:
        return raw.decode()
    return CUT + raw[len(CUT) - limit :].decode(errors="ignore")


def told(error: BaseException, limit: int = TEXT_BYTES) -> str:
    """An error with its traceback, as it stands in a message's history."""
    return shortened("".join(traceback.format_exception(error)), limit)
