"""Dead letters: messages that were given up, for a person to look into, to send on their way again, or to drop.

A message becomes one when it was delivered `max_deliveries` times to pods that died over it, when its task rejected it
for good, when nobody can read or run it, or when its queue does not take it back. It leaves by a person alone; nothing
expires. The fleet keeps its dead letters in one stream, so each has an ID that is never used again and they stand in
the order in which they died.

Requeue and drop are Lua, a batch of letters in each call. A letter is looked for, moved and deleted in one step, so of
two people who name the same one at once only the first moves it; the other is told that it is not there. A process that
dies between two batches has moved whole batches. Redis that goes away during a call leaves one batch of which nobody
knows; asking again is safe.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from throttle.scripts import Argument, Operations

OPERATIONS = ("bury", "dead_drop", "dead_requeue")
"""The operations of this module, `lua/<name>.lua`."""
ID = re.compile(r"\d{1,20}-\d{1,20}")
"""What the ID of a dead letter looks like: server time in ms, and a number."""
PAGE = 200
"""Letters that are read at once, or moved in one script."""
DIGITS = 14
"""Of the longest number that an entry may have: ms up to the year 5138."""
PRIORITY = "\x06\x16"
"""What kombu puts between the name of a queue and a priority."""

ATTEMPTS = "headroom_attempts"
"""Header of a retry: what ended the tries before it, lines as in a history."""
ATTEMPTS_KEPT = 8
"""So many of them, the newest."""

Entry: TypeAlias = "tuple[bytes | str, dict[bytes | str, bytes | str]]"


class Failure(NamedTuple):
    """One line of a letter's history: a delivery that ended badly, or a person who sent the message back."""

    at_ms: int
    """Server time."""
    member: str
    """The incarnation that held the message; empty where a person acted."""
    why: str
    text: str
    """The error with its traceback, where there was one, cut to 4 KiB; who it was, where a person acted."""


@dataclass(frozen=True)
class Letter:
    """One dead letter."""

    id: str
    source: bytes
    """Full Redis key of the list that it came from, and goes back to."""
    raw: bytes
    """The message as its producer wrote it."""
    deliveries: int
    """How many deliveries ended badly."""
    reason: str
    """Why the last one did."""
    member: str
    """The incarnation that held it last."""
    at_ms: int
    """When it died, server time."""
    history: tuple[Failure, ...] = ()
    """The newest failures, the oldest of them first."""
    prefix: str = ""
    """`global_keyprefix`."""

    @property
    def queue(self) -> str:
        """Name of its queue."""
        return self.source.decode(errors="replace").removeprefix(self.prefix).partition(PRIORITY)[0]

    @property
    def task(self) -> str:
        """Name of its task; empty where the message does not say it."""
        return self._header("task")

    @property
    def task_id(self) -> str:
        """Id of its task; empty where the message does not say it."""
        return self._header("id")

    @property
    def arguments(self) -> str:
        """The task's arguments in words, as far as the message tells them."""
        keywords = self._header("kwargsrepr")
        return " ".join(part for part in (self._header("argsrepr"), "" if keywords == "{}" else keywords) if part)

    @cached_property
    def message(self) -> dict[str, Any] | None:
        """The message as an object; None where it is no JSON object."""
        try:
            found = json.loads(self.raw)
        except (ValueError, RecursionError):
            return None
        return cast("dict[str, Any]", found) if isinstance(found, dict) else None

    def header(self, name: str) -> Any:
        """A header of the message; None where it has none such."""
        headers = (self.message or {}).get("headers")
        return cast("dict[str, Any]", headers).get(name) if isinstance(headers, dict) else None

    def _header(self, name: str) -> str:
        value = self.header(name)
        return value if isinstance(value, str) else ""


class Outcome(NamedTuple):
    """What became of one letter that was to be moved."""

    id: str
    error: str = ""
    """Empty: it was. Else why not; it stays where it was."""


NOT_THERE = "no such dead letter (any more)"


class DeadLetters:
    """The dead letters of one fleet. Each method raises `redis.RedisError` when Redis fails."""

    def __init__(self, operations: Operations) -> None:
        """Use the connection and the fleet of `operations`."""
        self._operations = operations
        self._client = operations.client
        self._keys = operations.keys

    def __iter__(self) -> Iterator[Letter]:
        """All that are there now, the oldest first. One round trip for each 200."""
        last = self._entries(self._client.xrevrange(self._keys.dead(), count=1))
        start = "-"
        while last:
            page = self._entries(self._client.xrange(self._keys.dead(), start, last[0][0], count=PAGE))
            yield from map(self._letter, page)
            if len(page) < PAGE:
                return
            start = "(" + _text(page[-1][0])

    def get(self, letter_id: str) -> Letter | None:
        """The letter with this ID. One round trip."""
        found = self._entries(self._client.xrange(self._keys.dead(), letter_id, letter_id))
        return self._letter(found[0]) if found else None

    def find(self, references: Iterable[str]) -> tuple[list[Letter], list[str]]:
        """Letters by their ID or by the id of their task, and those references that lead to none.

        A task's id may lead to more than one. One round trip for each ID; ids of tasks cost one look at all letters.
        """
        wanted = dict.fromkeys(references)
        found = {name: letter for name in wanted if ID.fullmatch(name) and (letter := self.get(name))}
        by_task = wanted.keys() - found.keys()
        known = set(found)
        if by_task:
            for letter in self:
                if letter.task_id in by_task:
                    found[letter.id] = letter
                    known.add(letter.task_id)
        return list(found.values()), [name for name in wanted if name not in known]

    def requeue(self, ids: Iterable[str], *, tail: bool = False, by: str = "") -> list[Outcome]:
        """Put letters back to the heads of their queues (or the tails) and ring for them; `by` is noted with each.

        Each may be delivered `max_deliveries` times again, and its retries begin anew. At the head the oldest comes
        first. Two round trips for each 200, and none is done twice however often and by how many it is asked.
        """
        order = sorted(set(ids), key=_age, reverse=not tail)
        return self._move("dead_requeue", order, "tail" if tail else "head", by, anew=True)

    def drop(self, ids: Iterable[str]) -> list[Outcome]:
        """Delete letters for good. One round trip for each 200."""
        return self._move("dead_drop", sorted(set(ids), key=_age))

    def _move(self, name: str, ids: Sequence[str], *arguments: Argument, anew: bool = False) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for begin in range(0, len(ids), PAGE):
            batch = ids[begin : begin + PAGE]
            named = self._with_messages_anew(batch, str(arguments[-1])) if anew else batch
            answers = self._operations.call(name, "", (), *arguments, *named)
            errors = [NOT_THERE if answer == b"" else _text(answer) for answer in map(_bytes, answers)]
            outcomes += [Outcome(i, "" if error == "OK" else error) for i, error in zip(batch, errors, strict=True)]
        return outcomes

    def _with_messages_anew(self, ids: Sequence[str], by: str) -> Iterator[Argument]:
        """Each ID, and its message as it is to be sent; '' for as it stands. An entry never changes under its ID."""
        with self._client.pipeline(transaction=False) as pipe:
            for letter_id in ids:
                pipe.xrange(self._keys.dead(), letter_id, letter_id)
            for letter_id, found in zip(ids, pipe.execute(), strict=True):
                yield letter_id
                entries = self._entries(found)
                yield tried_never(self._letter(entries[0]), by) if entries else b""

    @staticmethod
    def _entries(answer: Any) -> list[Entry]:
        return cast("list[Entry]", answer)

    def _letter(self, entry: Entry) -> Letter:
        """A letter, whatever somebody else wrote into the stream: one that is odd must not hide the others."""
        fields = {_text(name): _bytes(value) for name, value in entry[1].items()}
        text: Callable[[str], str] = lambda name: _text(fields.get(name, b""))  # noqa: E731 - short, and used often
        letter = Letter(
            id=_text(entry[0]),
            source=fields.get("source", b""),
            raw=fields.get("raw", b""),
            deliveries=_number(text("deliveries")),
            reason=text("reason"),
            member=text("member"),
            at_ms=_number(text("at")),
            history=_history(text("history")),
            prefix=self._keys.prefix,
        )
        tries = _lines(letter.header(ATTEMPTS))
        return replace(letter, history=tuple(sorted((*tries, *letter.history)))) if tries else letter


def bury(operations: Operations, member: str, held: tuple[str, str, str], letter: tuple[str, bytes, str, str]) -> bool:
    """Make a dead letter of a message that kombu holds, in one step. False: it holds none such, and nothing was done.

    `held`: kombu's hash and index of what is delivered, with its prefix, and the delivery tag; `letter`: source key,
    message, reason and the error.
    """
    hash_key, index_key, tag = held
    return operations.call("bury", member, (hash_key, index_key), tag, *letter) == 1


def tried_never(letter: Letter, by: str) -> bytes:
    """The message of a letter as before its first retry, with its story; empty where it was never retried."""
    retries = letter.header("retries")
    if not isinstance(retries, int) or retries <= 0 or letter.message is None:
        return b""
    sent = Failure(round(time.time() * 1000), "", "requeued by hand", by)
    headers = {**letter.message["headers"], "retries": 0, ATTEMPTS: [*letter.history, sent][-ATTEMPTS_KEPT:]}
    return json.dumps({**letter.message, "headers": headers}, ensure_ascii=False).encode()


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else 0


def _history(text: str) -> tuple[Failure, ...]:
    try:
        return _lines(json.loads(text or "[]"))
    except (ValueError, RecursionError):
        return ()


def _lines(found: Any) -> tuple[Failure, ...]:
    try:
        return tuple(Failure(_number(str(at)), *map(str, rest)) for at, *rest in found or ())
    except (ValueError, TypeError):
        return ()


def _age(letter_id: str) -> tuple[int, int]:
    """What sorts IDs by age."""
    if not ID.fullmatch(letter_id):
        message = f"{letter_id!r} is not the ID of a dead letter; allowed is one such as 1714561200000-0"
        raise ValueError(message)
    ms, _, number = letter_id.partition("-")
    return int(ms), int(number)


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
