"""The operations of the model (see the package docstring), each one Lua script and one round trip.

Every operation lives in `lua/<verb>.lua`, whose header says its keys, arguments and answers; the shared parts are the
files that begin with an underscore. This module is the only place that knows how an operation is called and what its
answer means. All of it is atomic in Redis: a client that dies while it waits for an answer has either done the whole
operation or none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from throttle.answers import (
    Beat,
    Clash,
    Counts,
    Empty,
    Joined,
    Lost,
    Parked,
    Stale,
    Standing,
    Take,
    TakeAnswer,
    Watched,
    Where,
)
from throttle.lua import Script, evaluate, read_lua, script, without_comments

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    import redis

    from throttle.keys import Keys

__all__ = [
    "OPERATIONS",
    "Argument",
    "Beat",
    "Clash",
    "Counts",
    "Empty",
    "Joined",
    "Lost",
    "Operations",
    "Parked",
    "Rule",
    "Script",
    "Stale",
    "Standing",
    "Take",
    "TakeAnswer",
    "Watched",
    "Where",
    "read_lua",
    "script",
    "without_comments",
]

Argument: TypeAlias = "str | bytes | int | float"


STALE = -2
"""TAKE's answer to a number that was used before."""


class Rule(NamedTuple):
    """What every operation carries, the same for all pods of a fleet."""

    ratio: float
    ttl_ms: int
    max_deliveries: int
    journal: int = 0


OPERATIONS = (
    "acquire", "ack", "back", "beat", "bind", "counts", "drain", "empty", "join", "knock", "leave", "park", "put",
    "take", "watch",
)  # fmt: skip


class Operations:
    """The operations on one fleet, through one client. Thread-safe as the client is; keeps no state.

    Each method is one round trip, two when the script cache of the server was emptied. Each raises `redis.RedisError`
    when Redis fails; whether the operation was done is then unknown. Each is safe to repeat: TAKE answers with the same
    message while it is held and with STALE afterwards, the others have no second effect; only `put` may publish twice.
    """

    def __init__(self, client: redis.Redis, keys: Keys, rule: Rule) -> None:
        """Use `client` (answers as bytes or as text) for the fleet of `keys`, under `rule`."""
        self.client = client
        self.keys = keys
        self.rule = rule
        self._namespace = keys.namespace()

    def join(
        self,
        member: str,
        *,
        epoch: str = "",
        next_id: int = 1,
        draining: bool = False,
        running: Iterable[Take] = (),
        emptied: Container[int] = (),
        given_back: Iterable[int] = (),
    ) -> Joined | Clash:
        """Become a member or confirm it; an older, silent incarnation of the pod is superseded and its work returns.

        `running` is all that the member works on, `emptied` the ids among it that are acknowledged already, `next_id`
        the take whose answer it may still await. What it runs is held again when Redis lost its data (another `epoch`
        than the one remembered). What it holds beyond that, under ids before `next_id`, comes from an older snapshot of
        Redis: those `given_back` (put back or parked lately) return to their queues, the others were acknowledged and
        are dropped.
        """
        back = "".join(f"{number}," for number in given_back)
        arguments: list[Argument] = ["draining" if draining else "living", epoch, next_id, back and f",{back}"]
        for take in running:
            gone = take.id in emptied
            arguments += [take.id, take.seq, take.deliveries, b"" if gone else take.source, b"" if gone else take.raw]
        answer = self.call("join", member, (), *arguments)
        if answer[0] == 1:
            return Joined(_text(answer[1]))
        return Clash(_text(answer[1]), int(answer[2]))

    def beat(self, member: str) -> Beat:
        """Tell that the member lives; returns dead members' messages on the way."""
        code, returned, server_ms = self.call("beat", member)
        return Beat(_STANDINGS[code], returned, server_ms)

    def take_command(
        self,
        member: str,
        take_id: int,
        critical: Sequence[str | bytes],
        normal: Sequence[str | bytes],
        acks: Iterable[int] = (),
    ) -> tuple[Argument, ...]:
        """The TAKE as a command for a connection of the caller's own; `parse_take` reads the answer.

        It acknowledges the takes of `acks` first, as `ack` would each; `parse_not_mine` tells which had no effect.
        """
        keys = (*critical, *normal)
        return self._command("take", member, keys, take_id, len(critical), *acks)

    @staticmethod
    def parse_take(take_id: int, answer: Any) -> TakeAnswer:
        """The answer to `take_command`, read with the id that was sent."""
        if answer[0] == 1:
            return Take(take_id, int(answer[1]), int(answer[2]), _bytes(answer[3]), _bytes(answer[4]))
        if answer[0] == 0:
            return Empty(answer[1] == 1, answer[2] == 1)
        return Stale() if answer[0] == STALE else Lost()

    @staticmethod
    def parse_not_mine(answer: Any) -> frozenset[int]:
        """From the same answer: acknowledgements that were none of the member's (any more)."""
        return frozenset(map(int, answer[-1]))

    @staticmethod
    def parse_odd(answer: Any) -> tuple[bytes, ...]:
        """From the same answer: queue keys that are no list, and were passed over."""
        return tuple(map(_bytes, answer[-2]))

    def take(
        self,
        member: str,
        take_id: int,
        critical: Sequence[str | bytes] = (),
        normal: Sequence[str | bytes] = (),
        acks: Iterable[int] = (),
    ) -> TakeAnswer:
        """Take the first admitted message from the head of its queue, or register as waiting."""
        answer = self.call("take", member, (*critical, *normal), take_id, len(critical), *acks)
        return self.parse_take(take_id, answer)

    def ack(self, member: str, take_id: int, *, keep: bool = False, work: Sequence[str | bytes] = ()) -> bool:
        """Delete a held message (or release a permit). False: it is not the member's (any more); no effect.

        `keep` keeps the slot for up to a second, for the TAKE that follows at once; with `work`, keys of queues, only
        if there is a message in one of them.
        """
        return self.call("ack", member, work, take_id, int(keep)) == 1

    def empty(self, member: str, take_id: int) -> bool:
        """Acknowledge before the work is done: the message is deleted, the slot stays until `ack`."""
        return self.call("empty", member, (), take_id) == 1

    def back(
        self, member: str, take_id: int, where: Where, *, deliveries: int = 0, reason: str = "", text: str = ""
    ) -> bool:
        """Put a held message back to the head or tail of its queue, or to the dead letters, `deliveries` more.

        `reason` and `text` (an error with its traceback) become a line of its history, if this is a failure at all:
        counted as a delivery, or the last one.
        """
        return self.call("back", member, (), take_id, where, deliveries, reason, text) == 1

    def park(self, member: str, take_id: int, due_ms: int) -> Parked:
        """Let a held message wait in Redis until `due_ms` (server time); it holds no slot meanwhile.

        By the server's clock, whatever the member's says: "due" when that time has come, and the message stays held.
        """
        return _PARKED[self.call("park", member, (), take_id, due_ms)]

    def drain(self, member: str) -> Standing:
        """Take nothing more; leave the count of the living; end the wait for the bell."""
        return _STANDINGS[self.call("drain", member)]

    def leave(self, member: str) -> int:
        """End the membership. Returns how many messages went back to their queues."""
        return self.call("leave", member)

    def put(self, key: str | bytes, message: str | bytes) -> int:
        """Publish to a queue and ring one waiter; returns the length of the queue."""
        return self.call("put", "", (key,), message)

    def acquire(self, member: str, permit_id: int, *, critical: bool = False) -> bool | None:
        """Ask for a permit under the same rule as TAKE. None: the member is LOST. `ack` releases it."""
        answer = self.call("acquire", member, (), permit_id, int(critical))
        return None if answer < 0 else answer == 1

    def knock(self, member: str, waits_for: Sequence[str | bytes] = (), *, put_back: int = 0) -> bool | None:
        """Ask whether normal work would be admitted now, without any in hand. None: the member is LOST.

        True keeps the slot up to a second for what the member fetches at once, if there is any in the queues that it
        `waits_for`. False registers it as waiting for these, or for any slot when it names none: its bell will be rung.
        `put_back` messages are added to the fleet's stats.
        """
        answer = self.call("knock", member, waits_for, put_back)
        return None if answer < 0 else answer == 1

    def counts(self) -> Counts:
        """The fleet in numbers."""
        return Counts(*self.call("counts", ""))

    def holds(self, member: str, take_id: int) -> bool:
        """Whether the member still holds a take: False once it was returned to its queue."""
        return bool(self.client.hexists(self.keys.held(member), str(take_id)))

    def poke(self, member: str) -> None:
        """End the member's own wait for its bell. Two commands, one round trip."""
        with self.client.pipeline(transaction=False) as pipe:
            pipe.lpush(self.keys.bell(member), "1")
            pipe.pexpire(self.keys.bell(member), 5000)
            pipe.execute()

    def watch(self, member: str, lease_ms: int) -> Watched | None:
        """Be the doorkeeper for `lease_ms` and ring for what lies in the queues. None: another member is."""
        return self.parse_watch(self.call("watch", member, (), lease_ms))

    def watch_command(self, member: str, lease_ms: int) -> tuple[Argument, ...]:
        """`watch` as a command for a connection of the caller's own; `parse_watch` reads the answer."""
        return self._command("watch", member, (), lease_ms)

    @staticmethod
    def parse_watch(answer: Any) -> Watched | None:
        """The answer to `watch_command`."""
        return None if answer[0] < 0 else Watched(answer[0], answer[1] == 1, tuple(_bytes(key) for key in answer[2:]))

    def bind(self, binding: str, exchange: str, *, keys: tuple[str, str, str], ttl_ms: int) -> int:
        """Bind a queue that expires, or keep its binding; `keys` are kombu's table, its deadlines, and those seen here.

        Returns how many bindings of the exchange went that nobody had spoken of for their time.
        """
        return int(self.call("bind", "", keys, binding, exchange, ttl_ms))

    def load(self, name: str) -> None:
        """Put a script into the server's cache; for callers of `take_command` that were answered NOSCRIPT."""
        self.client.script_load(self.script(name).source)

    def script(self, name: str) -> Script:
        """The script that stands behind an operation."""
        return script(name)

    def _command(
        self, name: str, member: str, keys: Sequence[str | bytes], *arguments: Argument
    ) -> tuple[Argument, ...]:
        ratio, ttl_ms, max_deliveries, journal = self.rule
        return (
            "EVALSHA", self.script(name).sha, 1 + len(keys), self._namespace, *keys,
            member, ttl_ms, ratio, max_deliveries, journal, *arguments,
        )  # fmt: skip

    def call(self, name: str, member: str, keys: Sequence[str | bytes] = (), *arguments: Argument) -> Any:
        """An operation by its name, for those that stand elsewhere; its answer as the script gave it."""
        return evaluate(self.client, self._command(name, member, keys, *arguments), self.script(name).source)


_PARKED: dict[int, Parked] = {0: "not yours", 1: "parked", 2: "due"}
_STANDINGS: dict[int, Standing] = {0: "lost", 1: "living", 2: "draining"}


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
