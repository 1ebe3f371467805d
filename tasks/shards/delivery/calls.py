"""The operations of the delivery: how each is called, and what its answer means. One script, one round trip each."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tasks.shards.delivery.windows import Entry
from throttle.lua import Script, assemble, read_lua

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tasks.shards.gateway.session import Session
    from tasks.shards.operations import Argument, Operations
    from tasks.shards.vocabulary import Slot

OPERATIONS = ("deliver", "overlap", "session", "turn")
Code = Literal["serves", "not held", "waits", "over", "older", "unusable"]
CODES: dict[int, Code] = {1: "serves", -1: "not held", -2: "waits", -3: "over", -4: "older", -5: "unusable"}
MOST_ENTRIES = 1000
PRUNED = -2
"""In place of when READY came: what was before it is out of the log, with this call."""
Begin = Literal["begin", "ask", "queued"]
BEGIN: dict[Begin, int] = {"begin": 1, "ask": 0, "queued": -1}
Deed = Literal["push", "line", "note", "skip", "pass"]


class Parcel(NamedTuple):
    """An event as it is handed to DELIVER."""

    sequence: int
    deed: Deed
    queue: str = ""
    """Key of the queue, for `push` and `line`."""
    entry: str = ""
    """What `skip` repeats."""
    guild: int = 0
    identity: str = ""
    ago_ms: int = 0
    replayed: bool = False
    message: bytes = b""
    starter: bytes = b""
    """For `line`: the message that starts the work on it, and ..."""
    owner: str = ""
    """... the id of that task."""


class Batch(NamedTuple):
    """All that one DELIVER carries."""

    fence: int
    generation: int
    session: Session
    base: int
    parcels: Sequence[Parcel] = ()
    gone: Sequence[str] = ()
    ended: bool = False
    ready_ago_ms: int = -1
    reached: str = ""


class Delivered(NamedTuple):
    """Of a DELIVER."""

    code: Code
    sequence: int = -1
    """The saved one; -1: nothing was done, nor asked."""
    began: str = ""
    now_ms: int = 0
    odd: str = ""
    """The key of a queue that is no list."""
    forgotten: int = 0
    """So many sequences were handed on that Redis has forgotten; -1: it has forgotten the session."""


class Overlapped(NamedTuple):
    """Of an OVERLAP."""

    code: Code
    now_ms: int
    ready_ms: int
    entries: tuple[Entry, ...]


@cache
def script(name: str) -> Script:
    """The Lua of an operation, with the parts that it uses; one of them is the fleet's own, closed in a function."""
    return assemble(name, _part)


def _part(name: str) -> str:
    if name != "_ring":
        return (files("tasks.shards") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    # Its KEYS and ARGV are those of the fleet's operations: the function's own, so that both read what they expect.
    return f"local function bells(KEYS, ARGV)\n{read_lua('_rule')}\n{read_lua('_bells')}\nreturn ring_for\nend"


class Calls:
    """Makes commands for one member of one bot's cluster."""

    def __init__(self, operations: Operations, fleet: str, ratio: float) -> None:
        """`fleet`: namespace of the fleet that works on the queues; `ratio`: its own."""
        self._operations, self._fleet, self._ratio = operations, fleet, ratio

    def _command(self, name: str, keys: Iterable[str], *arguments: Argument) -> tuple[Argument, ...]:
        ops = self._operations
        n, all_keys = ops.numbers, (ops.keys.namespace(), *keys)
        head = (ops.member, n.ttl_ms, n.scan_ms, n.reserve, ops.server)
        return ("EVALSHA", script(name).sha, len(all_keys), *all_keys, *head, *arguments)

    def session(self, slot: Slot) -> tuple[Argument, ...]:
        """A shard's session. Answer: `read_session`."""
        return self._command("session", (), *slot)

    def overlap(self, slot: Slot, fence: int, after: str) -> tuple[Argument, ...]:
        """What a shard may do, and more of its log. Answer: `read_overlapped`."""
        return self._command("overlap", (), *slot, fence, after or "-", MOST_ENTRIES)

    def deliver(self, slot: Slot, batch: Batch) -> tuple[Argument, ...]:
        """Hand on. Answer: `read_delivered`."""
        queues = list(dict.fromkeys(parcel.queue for parcel in batch.parcels if parcel.queue))
        told: list[Argument] = []
        for parcel in batch.parcels:
            number = queues.index(parcel.queue) + 1 if parcel.queue else 0
            where = {"push": str(number), "line": f"{number} {parcel.owner}"}.get(parcel.deed, parcel.entry)
            told += [
                parcel.sequence, parcel.deed, where, parcel.guild, parcel.guild >> 22, parcel.identity,
                parcel.ago_ms, int(parcel.replayed), parcel.message, parcel.starter,
            ]  # fmt: skip
        session = batch.session
        return self._command(
            "deliver", (self._fleet, *queues),
            *slot, batch.fence, batch.generation, session.id, session.resume_url, batch.base, int(batch.ended),
            batch.ready_ago_ms, batch.reached, self._ratio, len(batch.gone), *batch.gone, *told,
        )  # fmt: skip

    def turn(
        self, guild: int, owner: str, turn: int, done: int, *, begin: Begin = "begin", held: tuple[str, str] = ("", "")
    ) -> tuple[Argument, ...]:
        """Go on with a guild's line, from its first event with `turn` 0. Answer: `read_turn`.

        `held`: key and field by which the fleet holds the message of the task, empty when it does not.
        """
        return self._command("turn", (), guild, owner, turn, done, BEGIN[begin], *held)


def read_session(answer: Any) -> tuple[str, int, str] | None:
    """Id, sequence and resume URL."""
    return (_text(answer[0]), int(answer[1]), _text(answer[2])) if answer else None


def read_overlapped(answer: Any) -> Overlapped:
    """The answer of OVERLAP."""
    code, now_ms, ready_ms, told = answer
    entries = tuple(
        Entry(_text(told[i]), int(told[i + 1]), _text(told[i + 2]), int(told[i + 3]), told[i + 4] == b"1")
        for i in range(0, len(told), 5)
    )
    return Overlapped(CODES[code], int(now_ms), int(ready_ms), entries)


def read_delivered(answer: Any) -> Delivered:
    """The answer of DELIVER."""
    code = CODES[answer[0]]
    if code == "unusable":
        return Delivered(code, odd=_text(answer[1]))
    if len(answer) == 1:
        return Delivered(code)
    return Delivered(code, int(answer[1]), _text(answer[2]), int(answer[3]), forgotten=int(answer[4]))


def read_turn(answer: Any) -> tuple[int, int, bytes | None]:
    """Turn (0: another one has the line), how often the head was begun, and the head; None: nothing is left."""
    return int(answer[0]), int(answer[1]) if len(answer) > 1 else 0, answer[2] if len(answer) > 1 else None


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
