"""Dead letters: read, requeued and dropped, by one person and by two at once, and by ways that would be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
import redis

from tests.throttle.lab import BEAT_MS, Lab
from throttle.dead import NOT_THERE, PAGE, DeadLetters, Failure, Letter, Outcome
from throttle.keys import Keys
from throttle.scripts import Operations, Rule, Take

A, B = "a#1", "b#1"
LIMIT = 3
Scenario = Callable[[Lab], None]


def bury(lab: Lab, *messages: str, queue: str = "q", reason: str = "rejected") -> list[str]:
    """Let A take these and give them up; returns the IDs of the dead letters."""
    before = {letter.id for letter in DeadLetters(lab.ops)}
    lab.put(queue, *messages)
    for message in messages:
        assert lab.take(A, (queue,), ()) == message
        assert lab.ops.back(A, lab.ids[A], "dead", deliveries=1, reason=reason)
    return [letter.id for letter in DeadLetters(lab.ops) if letter.id not in before]


def moved(*ids: str) -> list[Outcome]:
    """What is answered when all of them were moved."""
    return [Outcome(letter_id) for letter_id in ids]


# ---------------------------------------------------------------- guarantees, each against a wrong way


def requeued_once(lab: Lab) -> None:
    """A letter that was requeued is none any more: whoever asks again is told so, and nothing is doubled."""
    lab.join(A)
    (letter,) = bury(lab, "m1")
    assert DeadLetters(lab.ops).requeue([letter]) == moved(letter)
    assert DeadLetters(lab.ops).requeue([letter]) == [Outcome(letter, NOT_THERE)]
    assert lab.queue("q") == ["m1"]


def requeued_in_order(lab: Lab) -> None:
    """At the head, the oldest letter comes first, and before what waits there already."""
    lab.join(A)
    ids = bury(lab, "m1", "m2", "m3")
    lab.put("q", "m4")
    DeadLetters(lab.ops).requeue(ids)
    assert lab.queue("q") == ["m1", "m2", "m3", "m4"]


def requeued_at_the_tail(lab: Lab) -> None:
    """At the tail likewise, behind what waits there."""
    lab.join(A)
    ids = bury(lab, "m1", "m2", "m3")
    lab.put("q", "m0")
    DeadLetters(lab.ops).requeue(ids, tail=True)
    assert lab.queue("q") == ["m0", "m1", "m2", "m3"]


def requeue_rings(lab: Lab) -> None:
    """A pod that waits for the queue is rung."""
    lab.join(A, B)
    ids = bury(lab, "m1", queue="c")
    assert lab.take(B) == "empty"
    DeadLetters(lab.ops).requeue(ids)
    assert lab.rung(B) == [B]
    assert lab.take(B) == "m1"


def refused_letter_stays(lab: Lab) -> None:
    """A letter whose queue is a key of another type stays what it is, and the others are moved."""
    lab.join(A)
    (stays,) = bury(lab, "m1", queue="r")
    (goes,) = bury(lab, "m2")
    lab.client.set("r", "a string")
    first, second = DeadLetters(lab.ops).requeue([stays, goes])
    assert first == Outcome(goes)
    assert second.id == stays
    assert second.error.startswith("WRONGTYPE")
    assert [letter.id for letter in DeadLetters(lab.ops)] == [stays]
    assert lab.queue("q") == ["m2"]


def dropped_once(lab: Lab) -> None:
    """A letter that was dropped is gone for good; of two who drop it one is told that it was not there."""
    lab.join(A)
    first, second = bury(lab, "m1", "m2")
    assert DeadLetters(lab.ops).drop([first, "5-5"]) == [Outcome("5-5", NOT_THERE), Outcome(first)]
    assert DeadLetters(lab.ops).drop([first]) == [Outcome(first, NOT_THERE)]
    assert [letter.id for letter in DeadLetters(lab.ops)] == [second]
    assert lab.queue("q") == []


def history_tells_all(lab: Lab) -> None:
    """Each failed delivery leaves a line: when, who held it, why, and the error. What is no failure leaves none."""
    lab.join(A)
    lab.put("q", "m")
    assert lab.take(A) == "m"
    assert lab.ops.back(A, 1, "head", deliveries=1, reason="crashed", text="WorkerLostError: 9")
    assert lab.take(A) == "m"
    assert lab.ops.back(A, 2, "tail", reason="not now")
    assert lab.take(A) == "m"
    lab.ops.leave(A)
    lab.advance(1000)
    lab.join(B)
    assert lab.take(B) == "m"
    lab.advance(BEAT_MS)
    lab.join("b#2")
    assert lab.take("b#2") == "m"
    lab.advance(1000)
    assert lab.ops.back("b#2", 1, "dead", deliveries=1, reason="rejected", text="ValueError: no\x00 \xfc")
    (letter,) = DeadLetters(lab.ops)
    start = 1_000_000
    assert letter.history == (
        Failure(start, A, "crashed", "WorkerLostError: 9"),
        Failure(start + 1000 + BEAT_MS, B, "pod lost", "it was started anew under its name"),
        Failure(start + 2000 + BEAT_MS, "b#2", "rejected", "ValueError: no\x00 \xfc"),
    )
    assert (letter.deliveries, letter.reason, letter.member, letter.at_ms) == (3, "rejected", "b#2", lab.now_ms)


def silence_is_told(lab: Lab) -> None:
    """The one who held it is named, not the one who noticed."""
    lab.join(A, B)
    lab.put("q", "m")
    for _ in range(3):
        assert lab.take(A) == "m"
        for _ in range(4):
            lab.advance(BEAT_MS, B)
        lab.join(A)
        lab.ids.pop(A)
    (letter,) = DeadLetters(lab.ops)
    assert {failure[1:] for failure in letter.history} == {(A, "pod lost", "it was silent for its TTL")}
    assert (letter.reason, letter.member, len(letter.history)) == ("pod lost", A, 3)


def remembered(lab: Lab) -> list[str]:
    """Keys that remember deliveries."""
    return [key.decode() for key in lab.client.scan_iter(lab.keys.namespace() + "deliveries:*")]


def fail(lab: Lab, count: int) -> None:
    """Let A crash over the head of the queue so often."""
    for _ in range(count):
        lab.take(A)
        assert lab.ops.back(A, lab.ids[A], "head", deliveries=1, reason="crashed", text="x")


def acknowledged_is_forgotten(lab: Lab) -> None:
    """What is done leaves nothing behind, however it failed before, and whether or not a person requeued it."""
    lab.join(A)
    lab.put("q", "m1")
    fail(lab, 2)
    assert len(remembered(lab)) == 1
    assert lab.take(A) == "m1"
    assert lab.ops.ack(A, lab.ids[A])
    (letter,) = bury(lab, "m2")
    assert remembered(lab) == []
    DeadLetters(lab.ops).requeue([letter])
    assert len(remembered(lab)) == 1
    assert lab.take(A) == "m2"
    assert lab.ops.ack(A, lab.ids[A])
    lab.put("q", "m3")
    assert lab.take(A) == "m3"
    assert lab.ops.back(A, lab.ids[A], "dead", reason="rejected")
    DeadLetters(lab.ops).requeue([letter.id for letter in DeadLetters(lab.ops)])
    assert lab.take(A) == "m3"
    assert lab.ops.ack(A, lab.ids[A])
    assert remembered(lab) == []


def requeued_starts_anew(lab: Lab) -> None:
    """Requeued, a message has all its deliveries before it again, and its story goes on where it ended."""
    lab.join(A)
    lab.put("q", "m")
    fail(lab, LIMIT)
    for round_ in range(1, 4):
        (letter,) = DeadLetters(lab.ops)
        assert letter.deliveries == LIMIT * round_
        assert len(letter.history) == (LIMIT if round_ == 1 else LIMIT + 1), "bounded"
        assert letter.history[-1].why == "crashed"
        assert DeadLetters(lab.ops).requeue([letter.id], by="ann@desk") == moved(letter.id)
        for before in range(LIMIT - 1):
            number = lab.ids[A] + 1
            for _ in range(2):  # asked again, it is told the same
                answer = lab.ops.take(A, number, (), ("q",))
                assert isinstance(answer, Take)
                assert (answer.raw, answer.deliveries) == (b"m", before), "as a new one"
            lab.ids[A] = number
            assert lab.ops.back(A, number, "head", deliveries=1, reason="crashed")
        assert list(DeadLetters(lab.ops)) == []
        fail(lab, 1)
    (letter,) = DeadLetters(lab.ops)
    assert letter.history[0][1:] == ("", "requeued by hand", "ann@desk")
    assert [failure.why for failure in letter.history[1:]] == ["crashed"] * LIMIT
    DeadLetters(lab.ops).requeue([letter.id])
    lab.take(A)
    assert lab.ops.back(A, lab.ids[A], "dead", deliveries=1, reason="rejected")
    (letter,) = DeadLetters(lab.ops)
    assert [failure.why for failure in letter.history] == ["crashed", "crashed", "requeued by hand", "rejected"]


XDEL, PUSH = "call('XDEL', DEAD, ARGV[i])", "pushed = redis.pcall(command"
CLOSED: dict[Scenario, dict[str, dict[str, str]]] = {
    requeued_once: {"the letter is left where it was": {XDEL: ""}},
    requeued_in_order: {"at the tail": {"and 'LPUSH' or 'RPUSH', {}": "and 'LPUSH' or 'LPUSH', {}"}},
    requeued_at_the_tail: {"at the head": {"and 'LPUSH' or 'RPUSH', {}": "and 'RPUSH' or 'RPUSH', {}"}},
    requeue_rings: {"no bell": {"ring_for(letter.source)": ""}},
    refused_letter_stays: {
        "deleted first": {PUSH: f"{XDEL} {PUSH}"},
        "the refusal ends it": {PUSH: PUSH.replace("pcall", "call")},
    },
    history_tells_all: {
        "the last line alone": {"pcall(cjson.decode, history or '[]')": "true, {}"},
        "a return is a failure": {"lost and {r[5]": "{r[5]"},
        "a wish is a failure": {"tonumber(ARGV[8]) > 0": "true"},
    },
    silence_is_told: {"by the noticer": {"{r[5], 'pod lost'": "{m, 'pod lost'"}},
    acknowledged_is_forgotten: {
        "count alone deleted": {"call('DEL', count_key(source, raw))": "call('HDEL', count_key(source, raw), 'n')"},
        "requeued with 0": {"math.max(n, 1)": "0"},
    },
    requeued_starts_anew: {
        "nothing forgiven": {"history, n)": "history)"},
        "everything forgiven": {"counting(source, raw, n) >= limit": "counting(source, raw, n) == n and n >= limit"},
        "told of what is forgiven": {"n = counting(source, raw, n)\n": ""},
        "told of it when asked again": {"seq, counting(source, raw, n), source": "seq, n, source"},
        "its story lost": {"pcall(tell, letter.history,": "pcall(tell, nil,"},
        "without end": {"while #lines > math.min(limit + 1, LINES)": "while false"},
    },
    dropped_once: {"never looked": {"'dead', ARGV[i]) == 1": "'dead', ARGV[i]) >= 0"}},
}


@pytest.mark.parametrize("scenario", CLOSED, ids=lambda s: s.__name__)
def test_holds(server: Any, scenario: Scenario) -> None:
    scenario(Lab(server))


@pytest.mark.parametrize(("scenario", "wrong"), [(s, w) for s, all_ in CLOSED.items() for w in all_],
                         ids=lambda x: x if isinstance(x, str) else x.__name__)  # fmt: skip
def test_does_not_hold_when_written(valkey: Any, scenario: Scenario, wrong: str) -> None:
    lab = Lab(valkey, changes=CLOSED[scenario][wrong])
    with pytest.raises((AssertionError, ValueError, TypeError, redis.ResponseError)):
        scenario(lab)
    assert lab.ops.used == set(lab.ops.changes), "the variant was really in use"


# ---------------------------------------------------------------- many of them, many people, any bytes


@pytest.fixture
def operations(server: redis.Redis) -> Operations:
    """A fleet whose only member is A."""
    made = Operations(server, Keys("t"), Rule(1.0, 30_000, 5))
    made.join(A)
    return made


LETTER: dict[Any, Any] = {"source": "q", "deliveries": 5, "reason": "crashed", "member": A, "at": 0}


def bury_many(operations: Operations, count: int) -> list[str]:
    """Dead letters with the messages 0, 1, 2, ..., written as the scripts write them."""
    with operations.client.pipeline() as pipe:
        for n in range(count):
            pipe.xadd(operations.keys.dead(), {**LETTER, "raw": str(n)})
        return [letter_id.decode() for letter_id in pipe.execute()]


def test_of_many_people_who_requeue_at_once_each_letter_is_sent_once(operations: Operations) -> None:
    count = 3 * PAGE + 7
    ids = bury_many(operations, count)

    def person(_: int) -> list[Outcome]:
        with redis.Redis(connection_pool=operations.client.connection_pool) as client:
            return DeadLetters(Operations(client, operations.keys, operations.rule)).requeue(ids)

    with ThreadPoolExecutor(4) as people:
        answers = [outcome for outcomes in people.map(person, range(4)) for outcome in outcomes]
    assert len(answers) == 4 * count
    assert sorted(outcome.id for outcome in answers if not outcome.error) == sorted(ids)
    assert {outcome.error for outcome in answers} == {"", NOT_THERE}
    assert sorted(map(int, operations.client.lrange("q", 0, -1))) == list(range(count))
    assert list(DeadLetters(operations)) == []


def test_the_order_stands_over_many_batches(operations: Operations) -> None:
    ids = bury_many(operations, 2 * PAGE + 1)
    DeadLetters(operations).requeue(reversed(ids))
    assert [int(raw) for raw in reversed(operations.client.lrange("q", 0, -1))] == list(range(len(ids)))


def test_all_are_read_once_the_oldest_first_and_none_that_comes_later(operations: Operations) -> None:
    ids = bury_many(operations, 2 * PAGE)
    seen: list[str] = []
    for letter in DeadLetters(operations):
        seen.append(letter.id)
        if len(seen) == PAGE + 1:
            bury_many(operations, 1)
    assert seen == ids


def test_a_letter_says_what_its_message_says(operations: Operations) -> None:
    message = {"headers": {"task": "shop.charge", "id": "t1", "argsrepr": "(1,)", "kwargsrepr": "{'a': 2}"}, "body": ""}
    operations.put("q\x06\x169", json.dumps(message))
    operations.take(A, 1, (), ("q\x06\x169",))
    operations.back(A, 1, "dead", deliveries=1, reason="rejected")
    (letter,) = DeadLetters(operations)
    said = (
        letter.task,
        letter.task_id,
        letter.arguments,
        letter.queue,
        letter.deliveries,
        letter.reason,
        letter.member,
    )
    assert said == ("shop.charge", "t1", "(1,) {'a': 2}", "q", 1, "rejected", A)
    assert letter.message == message
    server_ms = int(operations.client.time()[0]) * 1000
    assert abs(letter.at_ms - server_ms) < 60_000


SAY_NOTHING = (
    b"\x00\xff\r\n", b"", b"null", b"[]", b'{"headers": 5}', b'{"headers": {"task": [], "id": 1}}', b"[" * 100_000
)  # fmt: skip


@pytest.mark.parametrize("raw", SAY_NOTHING, ids=lambda raw: repr(raw[:20]))
def test_a_message_that_says_nothing_is_shown_and_comes_back_as_it_went(operations: Operations, raw: bytes) -> None:
    operations.put("q", raw)
    operations.take(A, 1, (), ("q",))
    operations.back(A, 1, "dead", reason="undecodable")
    letters = DeadLetters(operations)
    (letter,) = letters
    assert (letter.task, letter.task_id, letter.arguments, letter.raw) == ("", "", "", raw)
    assert letters.requeue([letter.id]) == moved(letter.id)
    assert operations.client.lrange("q", 0, -1) == [raw]


ODD = (
    {"foo": "bar"},
    {"source": "q", "raw": "m", "deliveries": "NaN", "at": "x", "history": "{{"},
    {"source": "q", "raw": "m", "deliveries": "-1", "at": "9" * 30, "history": '[["now", "m", "why", "text"], [1]]'},
    {"source": "q", "raw": "m", "history": "7"},
)


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_odd_entry_of_the_stream_hides_no_letter_and_goes_as_others_do(
    operations: Operations, odd: dict[Any, Any]
) -> None:
    stream = operations.keys.dead()
    number = operations.client.xadd(stream, odd)
    (good,) = bury_many(operations, 1)
    letters = DeadLetters(operations)
    assert [letter.id for letter in letters] == [cast("bytes", number).decode(), good]
    (outcome,) = letters.requeue([cast("bytes", number).decode()])
    assert operations.client.lrange("q", 0, -1).count(b"m") == ("raw" in odd)
    if "raw" not in odd:
        assert outcome.error
        assert letters.drop([outcome.id]) == moved(outcome.id)
    assert [letter.id for letter in letters] == [good]


def test_letters_are_found_by_their_id_and_by_that_of_their_task(operations: Operations) -> None:
    for number, task_id in enumerate(["t1", "t2", "t1"], 1):
        operations.put("q", json.dumps({"headers": {"task": "a", "id": task_id}}))
        operations.take(A, number, (), ("q",))
        operations.back(A, number, "dead", reason="rejected")
    letters = DeadLetters(operations)
    first, second, third = letters
    assert letters.find(["t1"]) == ([first, third], [])
    assert letters.find([second.id, "nobody", "t2", second.id, "9-9"]) == ([second], ["nobody", "9-9"])
    assert letters.find([]) == ([], [])
    assert letters.get("9-9") is None


@pytest.mark.parametrize("bad", ["", "1", "-", "+", "1-2-3", "a-b", "1-1 "])
def test_what_is_no_id_moves_nothing(operations: Operations, bad: str) -> None:
    (good,) = bury_many(operations, 1)
    for move in (DeadLetters(operations).requeue, DeadLetters(operations).drop):
        with pytest.raises(ValueError, match="is not the ID of a dead letter; allowed is one such as"):
            move([good, bad])
    assert [letter.id for letter in DeadLetters(operations)] == [good]


def test_letters_are_moved_while_the_memory_is_full(start_server: Any) -> None:
    server = start_server("valkey", {"maxmemory-policy": "noeviction"})
    with redis.Redis(port=server.port) as client:
        operations = Operations(client, Keys("t"), Rule(1.0, 30_000, 5))
        first, second = bury_many(operations, 2)
        client.config_set("maxmemory", 1)
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            operations.put("q", "more")
        assert DeadLetters(operations).requeue([first]) == moved(first)
        assert DeadLetters(operations).drop([second]) == moved(second)
        assert client.lrange("q", 0, -1) == [b"0"]


def test_a_client_that_decodes_reads_letters_too(operations: Operations) -> None:
    place = operations.client.connection_pool.connection_kwargs
    ids = bury_many(operations, 1)
    with redis.Redis(host=place["host"], port=place["port"], decode_responses=True) as client:
        letters = DeadLetters(Operations(client, operations.keys, operations.rule))
        assert [letter.id for letter in letters] == ids
        assert letters.find(ids)[0] == [Letter(ids[0], b"q", b"0", 5, "crashed", A, 0)]
        assert letters.drop(ids) == moved(*ids)
