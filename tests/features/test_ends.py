"""How a task can end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.features.table import feature

if TYPE_CHECKING:
    from tests.features.fleet import Fleet

GROUP = "The end of a task"
DROPPED = "Here what is refused, or cannot be handled, is dropped, as in plain Celery: there are no dead letters."


@feature(GROUP, "a result")
def test_result(fleet: Fleet, pool: str) -> None:
    task = fleet.send("add", 2, 3)
    assert fleet.result(task) == 5
    assert fleet.started(task) == 1


@feature(GROUP, "an exception: failed once, not delivered again")
def test_exception(fleet: Fleet, pool: str) -> None:
    task = fleet.send("raising")
    assert fleet.result(task).startswith("ValueError")
    fleet.settle()
    assert (fleet.state(task), fleet.started(task), fleet.dead()) == ("FAILURE", 1, [])


@feature(GROUP, "`Ignore`")
def test_ignore(fleet: Fleet, pool: str) -> None:
    task = fleet.send("ignoring")
    fleet.wait(lambda: fleet.runs("end", task), "its end")
    fleet.settle()
    assert (fleet.state(task), fleet.started(task), fleet.dead()) == ("PENDING", 1, [])


@feature(GROUP, "`Reject(requeue=True)`: to the tail of its queue")
def test_reject_and_requeue(fleet: Fleet, pool: str) -> None:
    gate = fleet.send("wait_for", "reject:requeue")
    others = [fleet.send("wait_for", "reject:requeue") for _ in range(3 if pool != "solo" else 0)]
    fleet.wait(lambda: all(fleet.started(task) for task in (gate, *others)), "a full pod")
    task = fleet.send("rejecting", True)  # noqa: FBT003 - a message's argument
    after = fleet.send("add", 1)
    fleet.open("reject:requeue")
    assert fleet.result(task) == "the second time"
    assert fleet.result(after) == 1
    assert fleet.started(task) == 2
    assert [entry["where"] for entry in fleet.journal("back")] == (["tail"] if fleet.gate == "take" else [])


@feature(GROUP, "`Reject(requeue=False)`: to the dead letters", otherwise=DROPPED)
def test_reject(fleet: Fleet, pool: str) -> None:
    task = fleet.send("rejecting", False)  # noqa: FBT003 - a message's argument
    fleet.wait(fleet.dead, "a dead letter")
    assert (fleet.dead(), fleet.started(task)) == (["rejected"], 1)


@feature(GROUP, "`acks_late=False`: the slot is kept until the end all the same")
def test_early_acknowledgement(fleet: Fleet, pool: str) -> None:
    task = fleet.send("early", "early:go")
    fleet.wait(lambda: fleet.started(task), "its start")
    if fleet.gate == "take":
        fleet.wait(lambda: fleet.journal("empty"), "the early acknowledgement")
    elif pool != "solo":  # there Celery sends it when the task has ended: its loop stands still until then
        fleet.wait(lambda: fleet.unacknowledged() == 0, "the early acknowledgement")
    assert fleet.operations.counts().busy == 1
    fleet.open("early:go")
    fleet.wait_done(task)


@feature(GROUP, "a task that nobody knows: to the dead letters", otherwise=DROPPED)
def test_unknown_task(fleet: Fleet, pool: str) -> None:
    fleet.send("no_such_task")
    fleet.wait(fleet.dead, "a dead letter")
    assert fleet.dead() == ["unknown task no_such_task"]


@feature(GROUP, "a message that nobody can read: to the dead letters", otherwise=DROPPED)
def test_undecodable_message(fleet: Fleet, pool: str) -> None:
    whole = {
        "body": "bm8ganNvbg==",  # "no json"
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": "add", "id": "undecodable"},
        "properties": {"body_encoding": "base64", "delivery_tag": "x", "delivery_info": {"exchange": ""}},
    }
    untrusted = {**whole, "content-type": "application/x-python-serialize"}
    messages = ["no JSON at all", json.dumps([1]), json.dumps(whole), json.dumps(untrusted)]
    fleet.client.lpush("celery", *messages)
    task = fleet.send("add", 1, 1)
    assert fleet.result(task) == 2
    fleet.wait(lambda: len(fleet.dead()) == len(messages), "dead letters")
    assert {reason.partition(":")[0] for reason in fleet.dead()} == {
        "undecodable",
        "invalid task add",
        "decode error add",
    }
