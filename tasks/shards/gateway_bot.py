"""What an answer to `GET /gateway/bot` means. Pure: from status, header and body to a verdict.

==========  =====================================================================================
verdict     for
==========  =====================================================================================
GatewayBot  200 with every field, each of a size that can be
Later       429, with the wait that Discord asks for; 5xx and nonsense, with no wait of their own
Never       401: the token is wrong, and every further request counts towards a ban
Refused     any other status: to ask again at once would bring the same
==========  =====================================================================================
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple, cast

from tasks.shards.totals import MOST

OK, REDIRECTED, UNAUTHORIZED, TOO_MANY, BROKEN = 200, 300, 401, 429, 500
LONGEST_DAY_MS = 2 * 86_400_000
MOST_IDENTIFIES = 10_000_000
DEFAULT_WAIT_S, LONGEST_WAIT_S = 5.0, 86_400.0


class GatewayBot(NamedTuple):
    """Where a bot connects, with how many shards, and how often it may identify."""

    url: str
    shards: int
    """The total that Discord recommends."""
    total: int
    """Identifies in a day."""
    remaining: int
    """Of them, until the day ends."""
    reset_after_ms: int
    max_concurrency: int


class Later(NamedTuple):
    """Ask again; `wait_s` is None when Discord did not say when."""

    why: str
    wait_s: float | None = None


class Never(NamedTuple):
    """Do not ask again."""

    why: str


class Refused(NamedTuple):
    """Not now; asking again at once brings the same."""

    why: str


class GarbledError(ValueError):
    """The body is not what Discord answers; the message says which part, and never more of it than a number."""


def judge(status: int, retry_after: str | None, body: bytes) -> GatewayBot | Later | Never | Refused:
    """What an answer means. `retry_after` is the header of that name."""
    if status == OK:
        try:
            return read(body)
        except GarbledError as error:
            return Later(f"it answered nonsense: {error}")
    if status == UNAUTHORIZED:
        return Never("it answered 401: the token in DISCORD_TOKEN is not valid")
    if status == TOO_MANY:
        wait_s, everywhere = wait(retry_after, body)
        return Later(f"it answered 429{' for all requests' if everywhere else ''}: wait {wait_s:g} s", wait_s)
    if status >= BROKEN:
        return Later(f"it answered {status}")
    return Refused(f"it answered {status}")


def read(body: bytes) -> GatewayBot:
    """The answer of status 200. Raises `GarbledError`."""
    answer = _object(body)
    if answer is None:
        raise GarbledError("no JSON object")
    limit = answer.get("session_start_limit")
    if not isinstance(limit, dict):
        raise GarbledError("session_start_limit is missing or no object")
    url = answer.get("url")
    if not isinstance(url, str) or not url.startswith(("ws://", "wss://")) or any(c.isspace() for c in url):
        raise GarbledError("url is missing or no address of a gateway")
    fields = cast("dict[str, Any]", limit)
    total = _whole(fields, "total", 1, MOST_IDENTIFIES)
    return GatewayBot(
        url=url,
        shards=_whole(answer, "shards", 1, MOST),
        total=total,
        remaining=_whole(fields, "remaining", 0, total),
        reset_after_ms=_whole(fields, "reset_after", 0, LONGEST_DAY_MS),
        max_concurrency=_whole(fields, "max_concurrency", 1, MOST),
    )


def wait(retry_after: str | None, body: bytes) -> tuple[float, bool]:
    """Seconds that a 429 asks for, the longer of header and body, and whether it is about all requests."""
    answer = _object(body) or {}
    said = [seconds for value in (retry_after, answer.get("retry_after")) if (seconds := _seconds(value)) is not None]
    return min(max(said, default=DEFAULT_WAIT_S), LONGEST_WAIT_S), answer.get("global") is True


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else None


def _whole(fields: dict[str, Any], name: str, low: int, high: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise GarbledError(f"{name} is missing or no whole number")
    if not low <= value <= high:
        raise GarbledError(f"{name} is not between {low} and {high}")
    return value


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
