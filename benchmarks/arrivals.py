"""When a pod first asks to join its fleet, seen from outside: MONITOR reports each JOIN, also one that is refused."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self, cast

import redis

from throttle.scripts import script

if TYPE_CHECKING:
    from collections.abc import Iterator


class Arrivals:
    """Notes each JOIN of a block; a context manager."""

    def __init__(self, client: redis.Redis) -> None:
        """Watch the server of ``client``."""
        options = client.connection_pool.connection_kwargs
        self._watcher = redis.Redis(
            host=str(options["host"]), port=int(options["port"]), decode_responses=True, socket_timeout=None
        )
        self._client = client
        self._asked_s: dict[str, float] = {}
        self._begun = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._follow, name="arrivals", daemon=True)

    def __enter__(self) -> Self:
        """Return when the server reports."""
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        """End it with the next command that the server reports, which is this one."""
        self._ended = True
        self._client.ping()
        self._thread.join()
        self._watcher.close()

    def first_of(self, pod: str) -> float | None:
        """When this pod first asked to join, by the server's clock; None when it has not."""
        return self._asked_s.get(pod)

    def _follow(self) -> None:
        join = script("join").sha
        with self._watcher.monitor() as stream:
            self._begun.set()
            for entry in cast("Iterator[dict[str, Any]]", stream.listen()):
                words = str(entry["command"]).split(" ", 5)
                if words[:2] == ["EVALSHA", join]:
                    self._asked_s.setdefault(words[4].rpartition("#")[0], float(entry["time"]))
                if self._ended:
                    return
