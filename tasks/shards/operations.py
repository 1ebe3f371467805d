"""The operations on a bot's cluster: how each is called, and what its answer means. One script, one round trip each.

`command` and `read_*` are apart, so that a client of any kind (blocking, asyncio, a test's) can carry them.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from tasks.shards.answers import Bind, Budget, Head, Looked, Member, Outcome, Stop, Synced, Target, View
from throttle.lua import Script, assemble

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tasks.shards.keys import Keys

Argument: TypeAlias = "str | bytes | int | float"
OPERATIONS = (
    "abort", "budget", "claim", "flip", "identify", "leave", "look", "release", "retry", "stop", "sync",
    "target", "vote",
)  # fmt: skip


class Numbers(NamedTuple):
    """What every operation carries, the same for all pods of a bot."""

    ttl_ms: int = 9000
    scan_ms: int = 2000
    reserve: int = 100
    rounds: int = 3
    spacing_ms: int = 5300
    settle_ms: int = 120_000
    """How long a new target may take: to be ready after its last identify, and FLIP to wait for the active one."""


class Known(NamedTuple):
    """What a member remembers, in case Redis does not."""

    epoch: int = 0
    n: int = 0
    active: Target | None = None
    pending: Target | None = None
    fence: int = 0
    peak: int = 0
    born: int = 0


class Hold(NamedTuple):
    """One bind that a member holds."""

    version: int
    shard: int
    fence: int
    ready: bool


class Call(NamedTuple):
    """An operation with its arguments, ready to be sent."""

    name: str
    arguments: tuple[Argument, ...]
    member: str = ""
    """In whose name it is sent; empty: the member's that sends it."""


@cache
def script(name: str) -> Script:
    """The Lua of an operation, with the parts that it uses."""
    return assemble(name, lambda part: (files("tasks.shards") / "lua" / f"{part}.lua").read_text(encoding="utf-8"))


class Operations:
    """Makes calls for one member of one bot's cluster. Keeps no state but who it is."""

    def __init__(self, keys: Keys, numbers: Numbers, member: str = "", credentials: str = "") -> None:
        """`member` is `pod#boot`, empty for a person who looks; `credentials`: the name of token and intents."""
        self.keys, self.numbers, self.member, self.credentials = keys, numbers, member, credentials
        self.server = ""
        """Run id of the Redis that the client is connected to; set at each connection."""

    def script(self, name: str) -> Script:
        """The script behind an operation."""
        return script(name)

    def command(self, call: Call) -> tuple[Argument, ...]:
        """A call as a command for a client. Answered NOSCRIPT, load `script(call.name)` and send it again."""
        n = self.numbers
        head = (call.member or self.member, n.ttl_ms, n.scan_ms, n.reserve, self.server)
        return ("EVALSHA", self.script(call.name).sha, 1, self.keys.namespace(), *head, *call.arguments)

    # -- the operations

    def sync(self, known: Known, holds: Iterable[Hold], *, limit: int, draining: bool, seen: int) -> Call:
        """Beat, tell, look. Answer: `read_synced`."""
        told: list[Argument] = []
        for hold in holds:
            told += [hold.version, hold.shard, hold.fence, "ready" if hold.ready else "initialising"]
        return Call(
            "sync",
            (
                known.epoch, known.n, _words(known.active), _words(known.pending), known.fence, known.peak,
                limit, int(draining), self.numbers.rounds, seen, known.born, *told,
            ),
        )  # fmt: skip

    def claim(self, version: int, most: int, shards: Sequence[int]) -> Call:
        """Take shards up to `most` in all. Answer: a list of fences, 0 for what was not given; empty: none may be."""
        return Call("claim", (version, most, self.credentials, *shards))

    def release(self, version: int, shard: int, fence: int) -> Call:
        """Give one shard up. Answer: 1, or 0 when it was not the member's."""
        return Call("release", (version, shard, fence))

    def leave(self, member: str = "") -> Call:
        """End the membership: one's own, or that of a `member` that is over for certain. Answer: 1, or 0 for none."""
        return Call("leave", (self.numbers.rounds,), member)

    def vote(self, total: int, told: int) -> Call:
        """File what Discord recommends, told so in `told` rounds. Answer: `read_outcome`."""
        return Call("vote", (total, told, self.numbers.rounds))

    def budget(self, total: int, remaining: int, reset_after_ms: int, concurrency: int) -> Call:
        """File what Discord says of the day's identifies."""
        return Call("budget", (total, remaining, reset_after_ms, concurrency))

    def target(self, total: int) -> Call:
        """Wish for a total, 0 for what the pods vote for. Answer: `read_outcome`."""
        return Call("target", (total, self.numbers.rounds))

    def flip(self, version: int) -> Call:
        """Make the pending target active. Answer: 1, or 0 when not all of it is ready, or the active one is behind."""
        return Call("flip", (version, self.numbers.settle_ms))

    def abort(self, version: int, why: str) -> Call:
        """Give the pending target up (version 0: whichever it is). Answer: 1, or 0 when there is none."""
        return Call("abort", (version, why))

    def identify(self, version: int, shard: int, fence: int) -> Call:
        """May this shard identify? Answer: 0 yes; ms to wait; or a reason not to, see `gate`."""
        return Call("identify", (version, shard, fence, self.numbers.spacing_ms, self.credentials))

    def stop(self, version: int, shard: int, fence: int, stop: Stop) -> Call:
        """Discord closed a shard for good: its scope is tried no more. Answer: 1, or 0 when it was not the member's."""
        return Call("stop", (version, shard, fence, stop.scope, stop.code, stop.why))

    def retry(self) -> Call:
        """A person has put right what was stopped. Answer: how many scopes were."""
        return Call("retry", ())

    def look(self) -> Call:
        """The whole cluster, for a person. Answer: `read_looked`."""
        return Call("look", ())


# ---------------------------------------------------------------- answers


def read_synced(answer: Any) -> Synced:
    """The answer of SYNC."""
    head, lost, view, proposed = answer
    pairs = tuple((int(lost[i]), int(lost[i + 1])) for i in range(0, len(lost), 2))
    return Synced(_head(head), pairs, _view(view) if view else None, int(proposed))


def read_looked(answer: Any) -> Looked:
    """The answer of LOOK."""
    head, view, note, guarded, budget = answer
    fields = {_text(budget[i]): _text(budget[i + 1]) for i in range(0, len(budget), 2)}
    return Looked(_head(head), _view(view), _text(note), _text(guarded), _budget(fields))


def read_outcome(answer: Any) -> Outcome:
    """The answer of VOTE and TARGET."""
    return "proposed" if answer == 1 else cast("Outcome", _text(answer))


def _budget(fields: dict[str, str]) -> Budget | None:
    if "remaining" not in fields:
        return None
    names = ("total", "remaining", "reset_at", "concurrency")
    return Budget(*(int(fields[name]) for name in names))


def _head(raw: Any) -> Head:
    *numbers, active, pending, peak, stops = raw
    rev, now_ms, epoch, n, fence, guard_ms, born = map(int, numbers)
    targets = _target(active), _target(pending)
    return Head(rev, now_ms, epoch, n, fence, guard_ms, *targets, peak, tuple(_stops(list(map(_text, stops)))), born)


def _stops(texts: list[str]) -> Iterable[Stop]:
    for scope, text in zip(texts[::2], texts[1::2], strict=True):
        code, at_ms, why = text.split(" ", 2)
        yield Stop(scope, int(code), int(at_ms), why)


def _view(raw: Any) -> View:
    names, told, versions, held = raw
    totals = {int(versions[i]): int(versions[i + 1]) for i in range(0, len(versions), 2)}
    binds: dict[tuple[int, int], Bind] = {}
    for version, fields in zip(totals, held, strict=True):
        for i in range(0, len(fields), 2):
            state, member, fence = _text(fields[i + 1]).split(" ")
            binds[version, int(fields[i])] = Bind(cast("Any", state), member, int(fence))
    return View(tuple(_member(_text(x), _text(t)) for x, t in zip(names, told, strict=True)), totals, binds)


def _member(name: str, told: str) -> Member:
    limit, draining, load = told.split(" ") if told else ("0", "1", "0")  # dead, and not yet given up
    return Member(name, int(limit), draining == "1", int(load))


def _target(raw: Any) -> Target | None:
    text = _text(raw)
    if not text:
        return None
    version, total, since_ms, by = text.split(" ")
    return Target(int(version), int(total), int(since_ms), cast("Any", by))


def _words(target: Target | None) -> str:
    return f"{target.version} {target.total} {target.since_ms} {target.by}" if target else ""


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
