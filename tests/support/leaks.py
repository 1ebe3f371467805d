"""The look for keys that nobody will ever remove.

Whatever a pod writes for itself must carry an expiry, or a fleet that changes its pods every day
fills its Redis in a year. A key without one is a leak unless it must outlive its writer.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import redis

NO_EXPIRY = -1
# kombu's own: which queues are bound to which exchange.
OUTLIVES_ITS_WRITER = ("*_kombu.binding.*",)


def leaked_keys(client: redis.Redis, allowed: Iterable[str] = ()) -> list[str]:
    """Names of the keys without an expiry, sorted, apart from those that may have none.

    Args:
        client: of the server to look at; costs one SCAN and one PTTL for each key.
        allowed: shell patterns (``*``, ``?``) of keys that must outlive their writer: queues with
            messages in them, the dead letters, the epoch.
    """
    patterns = (*OUTLIVES_ITS_WRITER, *allowed)
    raw = cast("Iterator[bytes | str]", client.scan_iter(count=1000))
    names = [name.decode() if isinstance(name, bytes) else name for name in raw if client.pttl(name) == NO_EXPIRY]
    return sorted(name for name in names if not any(fnmatchcase(name, p) for p in patterns))
