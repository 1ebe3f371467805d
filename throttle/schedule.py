"""One beat in a fleet: who leads the schedule, and what has run, decided in Redis.

Any number of beats may run. Each has a member name, `pod#boot`, new at each process start. One *leads*: it holds the
lease, in one *term* after another, each with a token of its own. The others *stand by*.

State: `schedule:lease` (the term's token, which Redis lets expire) and `schedule:entries`, for each entry its *record*:
the next due time, and the last one that it ran for.

**Invariant**: an entry runs for a due time at most once. RUN checks in one script that the term holds the lease, that
the record names the due time that the caller expects, and that the time has come; it publishes the messages and moves
the record on in the same script. Two that both believe that they lead cannot both run it.

Clock: the server's alone, in microseconds. A beat guesses it between two answers, from below, and is corrected by RUN.

==================  ============================================================================================
operation           what a crash, or an answer that is lost, leaves
==================  ============================================================================================
LEAD                the lease, for as long as it lasts; asked again by the same member, it is the same term
SETTLE              all records as the code declares them, or all as before
RUN                 all of it or nothing. Asked again it is answered with the record, which tells which
RESIGN              the lease, for as long as it lasts
==================  ============================================================================================

* A leader that is killed is replaced when its lease ends, one that ends in order within a second.
* A leader that is frozen or cut off for longer than its lease has lost it when it wakes up. Its RUN, also one that was
  on its way all the time, finds another term and has no effect.
* A restart of Redis with its data restores records and queues to the same moment: what ran after it runs again, as its
  messages are gone too.
* When Redis loses its data, who led remembers the records and settles them anew; who stood by waits one lease for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from throttle.scripts import Argument, Operations

OPERATIONS = ("lead", "resign", "run", "settle")

Standing: TypeAlias = Literal["begins", "goes on", "stands by", "yields"]
Outcome: TypeAlias = Literal["done", "early", "not leading", "otherwise"]


class Record(NamedTuple):
    """What is known of an entry. Times in microseconds of the server's clock; 0: never."""

    due_us: int
    last_us: int = 0
    ran_us: int = 0
    runs: int = 0
    digest: str = ""
    """Of its schedule: a record under another one tells nothing about runs that were missed."""

    def __str__(self) -> str:
        """As Redis keeps it."""
        return f"{self.due_us} {self.last_us} {self.ran_us} {self.runs} {self.digest}"

    @classmethod
    def read(cls, text: str) -> Record | None:
        """From what Redis keeps; None when it is no record."""
        parts = text.split(" ", 4)
        if len(parts) != len(cls._fields) or not all(part.isdecimal() for part in parts[:4]):
            return None
        due, last, ran, runs = map(int, parts[:4])
        return cls(due, last, ran, runs, parts[4])


class Led(NamedTuple):
    """The answer to LEAD."""

    standing: Standing
    term: str
    """Token of the term that leads; its own when it begins or goes on."""
    server_us: int
    left_ms: int
    """What is left of that term, unless it is renewed."""
    records: dict[str, Record]
    """Of a term that begins."""


class Ran(NamedTuple):
    """The answer to RUN."""

    outcome: Outcome
    server_us: int
    record: Record | None


class Messages(NamedTuple):
    """What one run publishes."""

    queued: Sequence[tuple[str, str]] = ()
    """Key of a queue, message."""
    broadcast: Sequence[tuple[str, str]] = ()
    """Channel, message."""


class Look(NamedTuple):
    """The schedule as a person sees it."""

    server_us: int
    leader: str
    """Member name of who leads, '' when nobody does."""
    since_us: int
    """When its term began, 0 when nobody leads."""
    standbys: tuple[str, ...]
    records: dict[str, Record]


class Schedule:
    """The operations on a fleet's schedule, as one member. Thread-safe as the client is; keeps no state.

    Each method is one round trip, two when the script cache of the server was emptied. Each raises `redis.RedisError`
    when Redis fails; whether it was done is then unknown, and to ask again is safe.
    """

    def __init__(self, operations: Operations, member: str, lease_s: float) -> None:
        """Use the client and the fleet of `operations`; a lease lasts `lease_s` seconds."""
        self._operations = operations
        self.member = member
        self.lease_ms = round(lease_s * 1000)

    def lead(self, term: str = "", *, yields: bool = False) -> Led:
        """Lead, go on leading (`term`, as it was answered), or stand by.

        With `yields` no term begins where the records are gone: somebody else may remember them.
        """
        answer = self._call("lead", term, self.lease_ms, int(yields))
        pairs = [_text(part) for part in answer[4:]]
        records = {
            name: read for name, text in zip(pairs[::2], pairs[1::2], strict=True) if (read := Record.read(text))
        }
        return Led(_STANDINGS[answer[0]], _text(answer[1]), int(answer[2]), answer[3], records)

    def settle(self, term: str, records: Mapping[str, Record]) -> bool:
        """Put these records in the place of all. False: the term is over; no effect."""
        parts: list[Argument] = []
        for name, record in records.items():
            parts += [name, str(record)]
        return self._call("settle", term, *parts) == 1

    def run(
        self,
        term: str,
        name: str,
        *,
        expected_us: int,
        due_us: int | None,
        next_us: int,
        messages: Messages = Messages(),  # noqa: B008 - immutable
    ) -> Ran:
        """Run an entry whose record names `expected_us` for `due_us`, and publish; None moves on without a run.

        Raises `redis.ResponseError` when one of the queues is no list, or Redis is full: nothing was done.
        """
        keys = [key for key, _ in messages.queued]
        raws: list[Argument] = [raw for _, raw in messages.queued]
        for channel, raw in messages.broadcast:
            raws += [channel, raw]
        due: Argument = "" if due_us is None else due_us
        answer = self._operations.call(
            "run", self.member, keys, term, self.lease_ms, name, expected_us, due, next_us, *raws
        )
        return Ran(_OUTCOMES[answer[0]], int(answer[1]), Record.read(_text(answer[2])))

    def resign(self, term: str) -> bool:
        """End in order. Whether the member led."""
        return self._call("resign", term) == 1

    def _call(self, name: str, *arguments: Argument) -> Any:
        return self._operations.call(name, self.member, (), *arguments)


def look(operations: Operations) -> Look:
    """See who leads, who stands by, and the records. One round trip."""
    keys = operations.keys
    with operations.client.pipeline() as pipe:
        pipe.time()
        pipe.get(keys.schedule_lease())
        pipe.zrange(keys.schedule_beats(), 0, -1)
        pipe.hgetall(keys.schedule_entries())
        (seconds, us), lease, seen, entries = pipe.execute()
    leader, _, since = _text(lease or b"").rpartition(" ")
    members = [_text(member) for member in cast("Iterable[bytes]", seen)]
    records = {
        _text(name): read
        for name, text in cast("dict[bytes, bytes]", entries).items()
        if (read := Record.read(_text(text)))
    }
    return Look(
        seconds * 1_000_000 + us,
        leader,
        int(since) if since.isdecimal() else 0,
        tuple(sorted(member for member in members if member != leader)),
        records,
    )


_STANDINGS: dict[int, Standing] = {2: "begins", 1: "goes on", 0: "stands by", -1: "yields"}
_OUTCOMES: dict[int, Outcome] = {1: "done", 0: "early", -1: "not leading", -2: "otherwise"}


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
