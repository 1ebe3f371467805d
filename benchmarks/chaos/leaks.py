"""Keys of the fleet that should not be there: with nothing to do, and again when every pod has left.

A key may be there for one of three reasons: it is the fleet's for good, it has an expiry that is as short as the table
in ``throttle.keys`` says, or it belongs to a pod that is there now. Fields and members named after a pod that has gone
are leaks as well: their keys have no expiry, and would grow with every pod that ever lived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from benchmarks.fleet import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

WEEK_S, HOUR_S, MINUTE_S = 7 * 24 * 3600, 3600, 60
FOR_GOOD = ("epoch", "seq", "dead")
# Beginning of the suffix -> the longest expiry it may have.
PASSING_S = {
    "guard": 20 * MINUTE_S, "waiting": MINUTE_S, "wanted": MINUTE_S, "waited": MINUTE_S, "rung": MINUTE_S,
    "coming:": MINUTE_S, "doorkeeper": 1, "bell:": 5, "journal": HOUR_S, "stats": WEEK_S,
}  # fmt: skip
OF_MEMBERS = {"pods:alive": "zset", "beats": "hash", "made": "hash"}
MARKER = "deliveries"
"""Of messages that were delivered before. It says that there are such, and stays for its week."""


def leaks(client: redis.Redis, living: int) -> list[str]:
    """What should not be there in a fleet without work, in words: of ``living`` pods, or of none."""
    found: list[str] = []
    members = {name.decode() for name in cast("list[bytes]", client.zrange(KEYS.alive(), 0, -1))}
    if len(members) != living:
        found.append(f"{KEYS.alive()} has {len(members)} members, not {living}")
    for raw in cast("Iterator[bytes]", client.scan_iter(KEYS.namespace() + "*", count=1000)):
        suffix = raw.decode().removeprefix(KEYS.namespace())
        kind = OF_MEMBERS.get(suffix)
        if suffix == "names":
            found += _strangers(suffix, cast("dict[bytes, bytes]", client.hgetall(raw)).values(), members)
        elif kind == "hash":
            found += _strangers(suffix, cast("list[bytes]", client.hkeys(raw)), members)
        elif kind is None and suffix not in FOR_GOOD:
            found += _lasting(suffix, client.ttl(raw))
    return found


def queues_left(client: redis.Redis) -> list[str]:
    """Keys outside the fleet's namespace, but kombu's: an empty queue is no key.

    Its notes of which queue is bound where stay; its lock expires by itself when a pod was killed that had it.
    """
    allowed = ("_kombu.binding", "unacked_mutex")
    names = [raw.decode() for raw in cast("Iterator[bytes]", client.scan_iter(count=1000))]
    return [name for name in names if not name.startswith((*allowed, KEYS.namespace()))]


def _strangers(suffix: str, names: object, members: set[str]) -> list[str]:
    told = {name.decode() for name in cast("list[bytes]", names)}
    return [f"{suffix} still names {name}" for name in sorted(told - members)]


def _lasting(suffix: str, ttl_s: int) -> list[str]:
    limit_s = next((limit for begin, limit in PASSING_S.items() if suffix.startswith(begin)), None)
    if suffix == MARKER:
        limit_s = WEEK_S
    if ttl_s == -2:  # noqa: PLR2004 - it ran out while it was looked at
        return []
    if limit_s is None:
        return [f"{suffix} is there"]
    if not 0 <= ttl_s <= limit_s:
        return [f"{suffix} expires in {ttl_s} s, not within {limit_s}"]
    return []
