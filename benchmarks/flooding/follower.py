"""Reads a fleet's journal while it is written, judges it, and trims what it has read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self, cast

import redis

from app.local.replay import Replay, parse, replay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.replay import Entry

CHUNK = 2000
PAUSE_S = 0.05


class Follower:
    """A thread that replays the journal from its beginning, to what is there at its end; a context manager."""

    def __init__(self, url: str, journal: str, *, ratio: float, ttl_ms: int) -> None:
        """``journal``: its key. It must not have been trimmed before."""
        self.found = Replay()
        """What the replay found; complete after the block."""
        self.members: set[str] = set()
        """Every incarnation that ever joined."""
        self._client = redis.Redis.from_url(url)
        self._journal, self._ratio, self._ttl_ms = journal, ratio, ttl_ms
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Read what is left, and end."""
        self._stopped.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        self.found = replay(self._entries(), ratio=self._ratio, ttl_ms=self._ttl_ms)

    def _entries(self) -> Iterator[Entry]:
        last = b"-"
        while True:
            last_turn = self._stopped.is_set()
            raw = cast(
                "list[tuple[bytes, dict[bytes, bytes]]]",
                self._client.xrange(self._journal, last if last == b"-" else b"(" + last, "+", count=CHUNK),
            )
            for entry in parse(raw):
                if entry.op == "join":
                    self.members.add(entry.member)
                yield entry
            if raw:
                last = raw[-1][0]
                minimum: Any = last
                self._client.xtrim(self._journal, minid=minimum, approximate=False)
            elif last_turn:
                return
            else:
                self._stopped.wait(PAUSE_S)
