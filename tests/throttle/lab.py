"""A laboratory for the operations: real Redis, real Lua, a clock that the test moves, and operations written wrong.

The clock replaces one line of the shared Lua (the body of `server_ms`), nothing else. A *variant* is an operation with
one piece of its text replaced: what somebody could have written instead. A test of a guarantee runs once with the real
scripts and once for each variant that breaks it, and must notice the difference.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from throttle import scripts
from throttle.keys import Keys
from throttle.scripts import Empty, Lost, Operations, Rule, Script, Stale, Take

if TYPE_CHECKING:
    from collections.abc import Mapping

CLOCK = "lab:clock"
_SERVER_MS = re.compile(r"local t = call\('TIME'\)\n  return [^\n]+")
TTL_MS = 6000
BEAT_MS = 2000


class LabOperations(Operations):
    """Operations on the laboratory's clock, some of them in a variant."""

    def __init__(self, client: Any, keys: Keys, rule: Rule, changes: Mapping[str, str]) -> None:
        """`changes`: Lua text -> what stands there instead; each must occur somewhere."""
        super().__init__(client, keys, rule)
        self.changes = dict(changes)
        self.used: set[str] = set()
        self._scripts: dict[str, Script] = {}

    def script(self, name: str) -> Script:
        """The script with clock and changes."""
        if name not in self._scripts:
            source, clocks = _SERVER_MS.subn(f"return tonumber(call('GET', '{CLOCK}'))", scripts.script(name).source)
            assert clocks == 1
            for old, new in self.changes.items():
                if old in source:
                    self.used.add(old)
                    source = source.replace(old, new)
            sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
            self._scripts[name] = Script(name, source, sha)
        return self._scripts[name]


class Lab:
    """One fleet `lab` with the queues c (critical), q and r, at a time that only `advance` moves."""

    def __init__(self, client: Any, *, ratio: float = 0.8, max_deliveries: int = 3,
                 changes: Mapping[str, str] | None = None, journal: int = 0) -> None:  # fmt: skip
        """Start at time 1,000,000 ms on an empty server."""
        self.client = client
        self.keys = Keys("lab")
        self.ops = LabOperations(client, self.keys, Rule(ratio, TTL_MS, max_deliveries, journal), changes or {})
        self.now_ms = 1_000_000
        self.ids: dict[str, int] = {}
        self.advance(0)

    def advance(self, ms: int, *beating: str) -> None:
        """Let time pass; then these members beat."""
        self.now_ms += ms
        self.client.set(CLOCK, self.now_ms)
        for member in beating:
            self.ops.beat(member)

    def join(self, *members: str) -> None:
        """Let new members join."""
        for member in members:
            assert self.ops.join(member) == scripts.Joined(self.epoch() or member)

    def epoch(self) -> str:
        """The epoch in Redis, '' when there is none."""
        value = self.client.get(self.keys.epoch())
        return value.decode() if isinstance(value, bytes) else ""

    def take(self, member: str, normal: tuple[str, ...] = ("q", "r"), critical: tuple[str, ...] = ("c",)) -> str:
        """Take with the member's next id; the message, 'empty', 'denied' or 'lost'."""
        number = self.ids.get(member, 0) + 1
        answer = self.ops.take(member, number, critical, normal)
        if isinstance(answer, Take):
            self.ids[member] = number
            return answer.raw.decode()
        if isinstance(answer, Empty):
            return "denied" if answer.denied else "empty"
        return "lost"

    def take_with_acks(self, member: str, number: int, *, acks: list[int]) -> tuple[str, set[int]]:
        """Take under a number, with acknowledgements: as `take`, or 'stale', and those that had no effect."""
        self.ops.load("take")
        raw = self.client.execute_command(*self.ops.take_command(member, number, ("c",), ("q", "r"), acks))
        answer = self.ops.parse_take(number, raw)
        words = {Lost(): "lost", Stale(): "stale"}
        if isinstance(answer, Take):
            word = answer.raw.decode()
        else:
            word = ("denied" if answer.denied else "empty") if isinstance(answer, Empty) else words[answer]
        return word, set(self.ops.parse_not_mine(raw))

    def put(self, queue: str, *messages: str) -> None:
        """Publish."""
        for message in messages:
            self.ops.put(queue, message)

    def queue(self, name: str) -> list[str]:
        """The messages of a queue, the head first."""
        return [raw.decode() for raw in reversed(self.client.lrange(name, 0, -1))]

    def held(self, member: str) -> dict[int, bytes]:
        """What a member holds: take id -> entry."""
        return {int(key): value for key, value in self.client.hgetall(self.keys.held(member)).items()}

    def rung(self, *members: str) -> list[str]:
        """Who of these has a token waiting."""
        return [member for member in members if self.client.llen(self.keys.bell(member))]
