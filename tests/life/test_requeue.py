"""The requeue gate in real workers: the same rule, no task lost or stuck, and few put back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from celery import Celery

from tests.worker.conftest import on_every_pool

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worker.conftest import Fleet

GATE = {"WORKLOAD_INSTALL": '{"gate": "requeue"}'}
PODS, CAPACITY = ("one", "two", "three"), 2


def holds_the_rule(fleet: Fleet) -> bool:
    """Whether each normal task was admitted while there was room."""
    admitted = [entry for entry in fleet.journal("take") if entry["lane"] == "normal"]
    return fleet.violations() == 0 and all(int(entry["busy"]) < int(entry["capacity"]) for entry in admitted)


def in_queue(fleet: Fleet, name: str = "celery") -> list[str]:
    """Ids of the tasks in a queue, the head first."""
    raw = cast("list[bytes]", fleet.client.lrange(name, 0, -1))
    return [json.loads(message)["headers"]["id"] for message in reversed(raw)]


def order_of_starts(fleet: Fleet) -> list[str]:
    """Tasks in the order in which they began."""
    return [r["task"] for r in fleet.workers.records() if r["what"] == "start"]


@on_every_pool
def test_every_end_of_a_task_gives_its_permit_back(fleet: Fleet, pool: str) -> None:
    fleet.start("pod", pool=pool, **GATE)
    plain = [fleet.send("work") for _ in range(5)]
    early = fleet.send("early", 0.2)
    retried = fleet.send("retried")
    requeued = fleet.send("rejecting", True)  # noqa: FBT003 - a message's argument
    late = fleet.send("work", countdown=1.0)
    critical = fleet.send("work", queue="critical")
    rejected = fleet.send("rejecting", False)  # noqa: FBT003 - a message's argument
    expired = fleet.send("work", expires=-1)
    unknown = fleet.send("no_such_task")
    fleet.wait_done(*plain, early, retried, requeued, late, critical)
    assert fleet.started(retried) == 2
    assert fleet.started(requeued) == 2
    assert [fleet.started(task) for task in (rejected, expired, unknown)] == [1, 0, 0]
    assert all(fleet.started(task) == 1 for task in [*plain, early, late, critical])
    fleet.wait(lambda: fleet.counts().busy == 0, "a free pod")
    fleet.wait(lambda: not fleet.client.keys("unacked*"), "no message left behind")
    assert fleet.waiting() == fleet.put_back() == fleet.violations() == 0


@on_every_pool
def test_a_saturated_fleet_holds_the_rule_and_puts_few_back(fleet: Fleet, pool: str) -> None:
    fleet.start(*PODS, pool=pool, **GATE)
    normal = [fleet.send("work", 0.15) for _ in range(24)]
    early = [fleet.send("early", 0.15) for _ in range(6)]
    critical = [fleet.send("work", 0.0, queue="critical") for _ in range(4)]
    fleet.wait_done(*normal, *early, *critical, timeout_s=30.0)
    assert all(fleet.started(task) == 1 for task in [*normal, *early, *critical])
    assert holds_the_rule(fleet)
    assert fleet.put_back() <= 2 * len(PODS), "churn"
    ran = order_of_starts(fleet)
    assert max(ran.index(task) for task in critical) < len(normal), "critical work waited behind normal work"
    places = {task: place for place, task in enumerate([t for t in ran if t in normal])}
    late = sum(places[task] > number + len(PODS) for number, task in enumerate(normal))
    assert late <= fleet.put_back(), "order"


@on_every_pool
def test_what_is_denied_waits_at_the_head_until_its_pod_is_rung(fleet: Fleet, pool: str) -> None:
    """Denied when it comes due, in the hands of the one pod that consumes its queue."""
    fleet.start("waits", pool=pool, arguments=["-Q", "celery"], ready=False, **GATE)
    fleet.start("works", pool=pool, arguments=["-Q", "other"], **GATE)
    fleet.wait(lambda: fleet.counts().alive == 2, "both pods")
    late = fleet.send("work", countdown=1.0)
    fleet.wait(lambda: fleet.client.hlen("unacked") == 1, "the message in the pod's hands")
    blocking = fleet.send("work", 5.0, queue="other")
    fleet.wait(lambda: fleet.put_back() and in_queue(fleet) == [late], "the message put back")
    after = [fleet.send("work") for _ in range(3)]
    critical = fleet.send("work", queue="critical")
    fleet.wait(lambda: fleet.started(critical), "critical work past the shut door")
    assert in_queue(fleet) == [late, *after]
    assert fleet.put_back() <= 2, "more than the one that was denied and the fetch that was under way"
    (holder,) = {entry["member"] for entry in fleet.journal("take") if entry["lane"] == "normal"}
    fleet.operations.drain(holder)  # from here on its slot is nobody's, although it works on
    fleet.wait(lambda: all(fleet.started(task) for task in (late, *after)), "the work of the pod that was rung")
    assert blocking not in fleet.workers.done()
    assert [task for task in order_of_starts(fleet) if task in after] == after
    fleet.wait_done(blocking, late, *after, critical)
    assert all(fleet.started(task) == 1 for task in (blocking, late, *after, critical))
    assert fleet.put_back() <= 2
    assert holds_the_rule(fleet)


@on_every_pool
def test_a_warm_shutdown_loses_nothing(fleet: Fleet, pool: str) -> None:
    leaving, _ = fleet.start(
        "one", "two", pool=pool, WORKLOAD_CONFIG='{"worker_prefetch_multiplier": 3}', THROTTLE_RATIO="1", **GATE
    )
    tasks = [fleet.send("work", 0.3) for _ in range(12)]
    fleet.wait(lambda: len(fleet.workers.records()) >= 4, "work under way")
    leaving.terminate()
    assert leaving.wait(15.0) == 0, leaving.read_log()[-3000:]
    fleet.wait_done(*tasks)
    assert all(fleet.started(task) == 1 for task in tasks)
    assert holds_the_rule(fleet)


def test_time_limits_revokes_and_lost_children_give_the_permit_back(fleet: Fleet) -> None:
    fleet.start("loses", arguments=["-Q", "dies"], THROTTLE_RATIO="1", ready=False, **GATE)
    fleet.start("limits", THROTTLE_RATIO="1", **GATE)
    dying = fleet.send("dying", queue="dies")
    fleet.wait(lambda: fleet.held() == 1, "the permit of a task whose child is lost")
    for hard, soft in ((0.5, None), (None, 0.5)):
        limited = fleet.send("work", 30.0, time_limit=hard, soft_time_limit=soft)
        fleet.wait(lambda task=limited: fleet.started(task), "a start")
        fleet.wait(lambda: ended(fleet, "limits"), "the permit back")
    revoked = fleet.send("work", 30.0)
    fleet.wait(lambda: fleet.started(revoked), "a start")
    fleet.producer.control.revoke(revoked, terminate=True, signal="SIGKILL")
    fleet.wait(lambda: ended(fleet, "limits"), "the permit back")
    fleet.wait(lambda: fleet.started(dying) >= 2, "a second delivery: kombu counts none", timeout_s=30.0)
    fleet.producer.control.revoke(dying)
    fleet.wait_done(fleet.send("work"))
    fleet.wait(lambda: ended(fleet, "loses"), "the permit back", timeout_s=30.0)
    assert fleet.violations() == 0


def ended(fleet: Fleet, pod: str) -> bool:
    """Whether each permit of a pod was given back."""
    entries = [entry for entry in fleet.journal("take", "ack") if entry["member"].startswith(f"{pod}#")]
    return sum(1 if entry["op"] == "take" else -1 for entry in entries) == 0


def test_the_fleet_forgets_a_pod_while_its_task_runs(fleet: Fleet) -> None:
    """A frozen pod is taken for dead; it joins anew, its task can know, and its late release has no effect."""
    pods = fleet.start("one", "two", pool="threads", **GATE)
    task = fleet.send("asking", 1.0)
    fleet.wait(lambda: fleet.started(task), "a start")
    (frozen,) = [pod for pod in pods if pod.name == fleet.workers.records()[0]["pod"]]
    frozen.pause()
    fleet.wait(lambda: fleet.journal("gone"), "the fleet without it")
    assert fleet.counts().busy == 0
    frozen.resume()
    fleet.wait(lambda: fleet.counts().alive == 2, "both pods alive")
    fleet.wait_done(task, *[fleet.send("work", 0.1) for _ in range(6)])
    fleet.wait(lambda: "was the fleet's again" in frozen.read_log(), "the warning")
    kept = fleet.send("asking", 0.0)
    fleet.wait_done(kept)
    assert [fleet.client.lrange(f"asked:{asked}", 0, -1) for asked in (task, kept)] == [[b"0"], [b"1"]]
    assert holds_the_rule(fleet)


def redis_restarts(fleet: Fleet, pool: str) -> None:
    """With its data: what runs ends, and every pod lets in again."""
    fleet.start("one", "two", pool=pool, **GATE)
    task = fleet.send("work", 2.0)
    fleet.wait(lambda: fleet.started(task), "a start")
    fleet.client.server.kill()
    fleet.client.server.start()
    fleet.wait_done(task, *[fleet.send("work", 0.1) for _ in range(4)], timeout_s=40.0)
    fleet.wait(lambda: fleet.counts().alive == 2 and fleet.counts().busy == 0, "both pods alive and free")
    assert fleet.violations() == 0


test_after_redis_restarted_every_pool_lets_in_again = on_every_pool(
    redis_restarts, {"appendonly": "yes", "appendfsync": "always"}
)


def test_pods_at_both_gates_keep_one_rule(fleet: Fleet) -> None:
    """As in a rolling upgrade. The message that one of them puts back, the other takes."""
    fleet.start("takes", "takes-too", pool="threads", ready=False)
    fleet.start("asks", "asks-too", pool="threads", **GATE)
    fleet.wait(lambda: fleet.counts().alive == len(("takes", "takes-too", "asks", "asks-too")), "all pods")
    normal = [fleet.send("work", 0.1) for _ in range(30)]
    critical = [fleet.send("work", queue="critical") for _ in range(4)]
    fleet.wait_done(*normal, *critical)
    fleet.wait(lambda: not fleet.client.keys("unacked*"), "no message left behind")
    assert all(fleet.started(task) == 1 for task in [*normal, *critical])
    worked = {r["pod"] for r in fleet.workers.records()}
    assert worked & {"takes", "takes-too"}
    assert worked & {"asks", "asks-too"}
    assert holds_the_rule(fleet)


def test_the_fleet_of_an_app_on_another_broker_is_at_redis_url(fleet: Fleet, tmp_path: Path) -> None:
    """What Headroom has for other brokers: kombu's own, here one that is a folder."""
    broker = {"broker_url": "filesystem://", "broker_transport_options": folder_of_messages(tmp_path)}
    pods = fleet.start("one", "two", pool="threads", WORKLOAD_CONFIG=json.dumps(broker), **GATE)
    with Celery("producer", set_as_current=False) as app:
        app.conf.update(broker)
        producer: Any = app
        tasks: list[str] = [
            producer.send_task("tests.worker.workload.work", [0.3], ignore_result=True, queue=queue).id
            for queue in ("celery", "celery", "celery", "critical")
        ]
    ended = [f"{task}] succeeded" for task in tasks]
    fleet.wait(lambda: all(any(end in pod.read_log() for pod in pods) for end in ended), "all tasks")
    fleet.wait(lambda: fleet.held() == 0, "every permit back")
    assert sorted(entry["lane"] for entry in fleet.journal("take")) == ["critical", "normal", "normal", "normal"]
    assert holds_the_rule(fleet)


def folder_of_messages(folder: Path) -> dict[str, str]:
    """Options of kombu's file system transport: one folder that producers write to and workers read from."""
    names = ("messages", "control")
    for name in names:
        (folder / name).mkdir()
    messages, control = (str(folder / name) for name in names)
    return {"data_folder_in": messages, "data_folder_out": messages, "control_folder": control}


def test_an_upgrade_of_kombu_is_no_outage(fleet: Fleet) -> None:
    (pod,) = fleet.workers.start(names=["pod"], app="tests.worker.upgraded", THROTTLE_JOURNAL="1000")
    fleet.wait_done(fleet.send("work"), fleet.send("work", queue="critical"))
    warnings = [line for line in pod.read_log().splitlines() if 'gate="requeue"' in line]
    assert len(warnings) == 1
    assert "because kombu.transport.redis.SentinelChannel is gone" in warnings[0]
    assert "gate requeue" in pod.read_log()
    assert holds_the_rule(fleet)
    assert len(fleet.journal("take")) == 2
