"""Checkpoints in the fleet's Redis: a hash for each task, an index of those that there are.

Each operation is one script (`lua/`), so one round trip, two when the script cache of the server was emptied. The
client is the fleet's own, with its time limits: an answer is waited for as long as the client's `socket_timeout` says.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

import redis

from tasks.checkpoints.protocol import (
    Gone,
    Listed,
    Saved,
    Status,
    StoreAway,
    Superseded,
    checked_id,
    read_progress,
    read_status,
)
from throttle.lua import without_comments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis.commands.core import Script

    from throttle.keys import Keys

OPERATIONS = ("clear", "list", "open", "save")
AT_ONCE = 200
"""Checkpoints that one round trip of LIST looks at."""


@cache
def source(name: str) -> str:
    """The script `lua/<name>.lua` without its prose."""
    return without_comments((files("tasks.checkpoints") / "lua" / f"{name}.lua").read_text(encoding="utf-8"))


class RedisStore:
    """See `CheckpointStore`."""

    def __init__(self, client: redis.Redis, keys: Keys, ttl_s: float) -> None:
        """Use `client`, which answers bytes, for the fleet of `keys`; nothing is sent. It stays the caller's."""
        self.keys = keys
        self.ttl_ms = round(ttl_s * 1000)
        self._client = client
        self._scripts: dict[str, Script] = {name: client.register_script(source(name)) for name in OPERATIONS}

    def open(self, task_id: str, task: str) -> RedisSlot:
        """One round trip."""
        identity = checked_id(task_id)
        keys = [self.keys.checkpoint(identity), self.keys.checkpoints()]
        fence, *found = self.call("open", keys, identity, task, self.ttl_ms)
        return RedisSlot(self, keys, identity, int(fence), _saved(found) if found else None)

    def list(self) -> Iterator[Listed]:
        """One round trip for the ids, and one for each two hundred of them."""
        index = self.keys.checkpoints()
        try:
            ids = cast("list[bytes]", self._client.zrange(index, 0, -1))
        except (redis.RedisError, OSError) as error:
            raise _away(error) from None
        for start in range(0, len(ids), AT_ONCE):
            some = [raw.decode(errors="backslashreplace") for raw in ids[start : start + AT_ONCE]]
            for row in self.call("list", [index, *map(self.keys.checkpoint, some)], *some):
                identity, task, status, progress, age_ms = (_text(cell) for cell in row[:5])
                yield Listed(
                    identity, task, read_status(status), read_progress(progress), int(age_ms) / 1000, int(row[5])
                )

    def close(self) -> None:
        """Nothing: the client is the fleet's."""

    def call(self, name: str, keys: list[str], *arguments: Any) -> Any:
        """Run a script. Raises `StoreAway` for all that Redis can do wrong: silence, a refusal, a full memory."""
        try:
            return self._scripts[name](keys=keys, args=arguments)
        except (redis.RedisError, OSError) as error:
            raise _away(error) from None


class RedisSlot:
    """See `Slot`. One round trip a call."""

    def __init__(self, store: RedisStore, keys: list[str], identity: str, fence: int, found: Saved | None) -> None:
        """Made by `RedisStore.open`."""
        self.fence = fence
        self.found = found
        self._store, self._keys, self._identity = store, keys, identity

    def save(self, status: Status, progress: float, context: bytes) -> None:
        """Write."""
        answer = self._store.call(
            "save", self._keys, self._identity, self.fence, self._store.ttl_ms, status, repr(float(progress)), context
        )
        if answer == 0:
            message = f"another run of task {self._identity} has opened its checkpoint"
            raise Superseded(message)
        if answer < 0:
            message = f"the checkpoint of task {self._identity} is gone"
            raise Gone(message)

    def clear(self) -> bool:
        """Remove."""
        return self._store.call("clear", self._keys, self._identity, self.fence) == 1


def _saved(found: list[bytes]) -> Saved:
    status, progress, updated = (_text(cell) for cell in found[:3])
    return Saved(read_status(status), read_progress(progress), int(updated) if updated.isdigit() else 0, found[3])


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _away(error: Exception) -> StoreAway:
    first = str(error).partition("\n")[0].rstrip(".")
    return StoreAway(f"Redis: {first or type(error).__name__}")
