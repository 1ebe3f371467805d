"""Header, body and Python call of each operation say the same."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

import pytest
import redis

from throttle import dead, rights, schedule, scripts
from throttle.dead import DeadLetters
from throttle.keys import Keys
from throttle.schedule import Messages, Schedule
from throttle.scripts import Operations, Rule, Take, read_lua, script

if TYPE_CHECKING:
    from collections.abc import Callable

OPERATIONS = (*scripts.OPERATIONS, *dead.OPERATIONS, *rights.OPERATIONS, *schedule.OPERATIONS)
COMMON_ARGUMENTS = 5  # member, ttl, ratio, max deliveries, journal: _rule.lua
TAKE = Take(1, 1, 0, b"q", b"m")
CALLS: dict[str, Callable[[Operations], Any]] = {
    "acquire": lambda ops: ops.acquire("a#1", 1),
    "ack": lambda ops: ops.ack("a#1", 1, keep=True, work=["q", "r"]),
    "back": lambda ops: ops.back("a#1", 1, "head"),
    "beat": lambda ops: ops.beat("a#1"),
    "bury": lambda ops: dead.bury(ops, "a#1", ("unacked", "unacked_index", "tag"), ("q", b"m", "why", "text")),
    "bind": lambda ops: ops.bind("b", "x", keys=("table", "deadlines", "seen"), ttl_ms=1000),
    "counts": lambda ops: ops.counts(),
    "dead_drop": lambda ops: DeadLetters(ops).drop(["1-0"]),
    "dead_requeue": lambda ops: DeadLetters(ops).requeue(["1-0"], by="me"),
    "drain": lambda ops: ops.drain("a#1"),
    "empty": lambda ops: ops.empty("a#1", 1),
    "join": lambda ops: ops.join("a#1", running=[TAKE]),
    "knock": lambda ops: ops.knock("a#1", ["q", "r"], put_back=1),
    "lead": lambda ops: Schedule(ops, "a#1", 1).lead(),
    "leave": lambda ops: ops.leave("a#1"),
    "park": lambda ops: ops.park("a#1", 1, 1),
    "put": lambda ops: ops.put("q", "m"),
    "resign": lambda ops: Schedule(ops, "a#1", 1).resign(""),
    "rights": lambda ops: rights.missing(ops, keys=["q", "r"]),
    "run": lambda ops: Schedule(ops, "a#1", 1).run(
        "a#1 1", "nightly", expected_us=1, due_us=1, next_us=2, messages=Messages([("q", "m")], [("c", "m")])
    ),
    "settle": lambda ops: Schedule(ops, "a#1", 1).settle("a#1 1", {"nightly": schedule.Record(1)}),
    "take": lambda ops: ops.take("a#1", 1, ["c"], ["q", "r"]),
    "watch": lambda ops: ops.watch("a#1", 1000),
}


class Recorder(redis.Redis):
    """A client that also notes the last script call it sent."""

    sent: tuple[Any, ...] = ()

    def execute_command(self, *arguments: Any, **options: Any) -> Any:
        if arguments[0] == "EVALSHA":
            self.sent = arguments
        return cast("Any", super()).execute_command(*arguments, **options)


def header(name: str, what: str) -> list[tuple[int, bool]]:
    """The KEYS or ARGV lines of a header: index, and whether it stands for any number from there on."""
    found = re.findall(rf"^-- {what}\[(\d+)(\.\.)?\] \S", read_lua(name), re.MULTILINE)
    return [(int(index), bool(dots)) for index, dots in found]


def test_every_file_is_an_operation_and_has_a_call() -> None:
    lua = {path.name.removesuffix(".lua") for path in (files("throttle") / "lua").iterdir()}
    assert {name for name in lua if not name.startswith("_")} == set(OPERATIONS) == set(CALLS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_header_begins_with_what_it_does(name: str) -> None:
    lines = read_lua(name).splitlines()
    assert re.match(rf"-- {name.upper()}: [A-Z]?\w", lines[0])
    assert any(line.startswith("-- USES rule") for line in lines)
    assert any(line.startswith("-- RETURNS ") for line in lines)
    assert len(lines) <= 60, "an operation fits on a screen"


@pytest.mark.parametrize("name", OPERATIONS)
def test_header_and_body_name_the_same_arguments(name: str) -> None:
    body = "\n".join(line for line in read_lua(name).splitlines() if not line.startswith("--"))
    for what, first in (("KEYS", 2), ("ARGV", COMMON_ARGUMENTS + 1)):
        declared = [item for item in header(name, what) if item[0] >= first]
        assert [index for index, _ in declared] == list(range(first, first + len(declared)))
        literal = {int(index) for index in re.findall(rf"\b{what}\[(\d+)\]", body)}
        open_ended = bool(re.search(rf"#{what}", body))
        assert open_ended == any(dots for _, dots in declared)
        assert literal == {index for index, dots in declared if not dots}


@pytest.mark.parametrize("name", OPERATIONS)
def test_call_passes_what_the_header_says(server: redis.Redis, name: str) -> None:
    client = Recorder(connection_pool=server.connection_pool)
    operations = Operations(client, Keys("t"), Rule(0.8, 6000, 3))
    CALLS[name](operations)
    _, sha, count, *rest = client.sent
    assert sha == script(name).sha
    keys, arguments = rest[: int(count)], rest[int(count) :]
    assert keys[0] == "{headroom:t}:"
    for what, given in (("KEYS", keys), ("ARGV", arguments)):
        declared = header(name, what)
        common = 1 if what == "KEYS" else COMMON_ARGUMENTS
        fixed = max([index for index, dots in declared if not dots], default=common)
        assert len(given) >= max(fixed, common)
        assert len(given) == max(fixed, common) or any(dots for _, dots in declared)


def test_shared_parts_declare_the_common_arguments() -> None:
    declared = re.findall(r"^--   ARGV\[(\d+)\]", read_lua("_rule"), re.MULTILINE)
    assert declared == [str(index) for index in range(1, COMMON_ARGUMENTS + 1)]


@pytest.mark.parametrize("name", OPERATIONS)
def test_script_flush_costs_one_more_round_trip_and_no_more(server: redis.Redis, name: str) -> None:
    operations = Operations(server, Keys("t"), Rule(0.8, 6000, 3))
    server.script_flush()
    CALLS[name](operations)
    assert server.script_exists(script(name).sha) == [True]


def test_clients_that_decode_answers_work_too(server: redis.Redis) -> None:
    host = server.connection_pool.connection_kwargs
    with redis.Redis(host=host["host"], port=host["port"], decode_responses=True) as client:
        operations = Operations(client, Keys("t"), Rule(0.8, 6000, 3))
        operations.join("a#1")
        operations.put("q", "m")
        assert operations.take("a#1", 1, (), ("q",)) == TAKE
        assert operations.ack("a#1", 1)


@pytest.mark.parametrize("raw", [b"\x00\xff\n 1 2 3 \r\n", b"", b"[] {}", b"x" * 1_000_000])
def test_any_bytes_come_back_as_they_went(server: redis.Redis, raw: bytes) -> None:
    """Nothing is parsed: empty bodies, binary bodies, keys with line ends and separators."""
    operations = Operations(server, Keys("t"), Rule(0.8, 6000, 9))
    source = b"queue \n 7 \x06\x169"
    operations.join("a#1")
    operations.put(source, raw)
    for number in (1, 2):
        take = operations.take("a#1", number, (), (source,))
        assert isinstance(take, Take)
        assert (take.source, take.raw, take.deliveries) == (source, raw, number - 1)
        assert operations.back("a#1", number, "head", deliveries=1)
    assert server.lrange(source, 0, -1) == [raw]
