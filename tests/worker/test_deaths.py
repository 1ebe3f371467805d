"""Pods that are killed, frozen, restarted, cut off and shut down, on all four pools: nothing is lost or done twice."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.worker.conftest import on_every_pool

if TYPE_CHECKING:
    from app.local.guard import Process
    from tests.worker.conftest import Fleet

TTL_S = 3.0


def holder(fleet: Fleet, task: str, pods: list[Process]) -> tuple[Process, Process]:
    """The pod that runs a task, and the other one."""
    fleet.wait(lambda: fleet.started(task), "the task's start")
    runs = next(r["pod"] for r in fleet.workers.records() if r["task"] == task)
    first, second = pods
    return (first, second) if first.name == runs else (second, first)


@on_every_pool
def test_a_killed_pod_gives_its_message_back_once(fleet: Fleet, pool: str) -> None:
    pods = fleet.start("one", "two", pool=pool)
    task = fleet.send("work", 1.5)
    dying, _ = holder(fleet, task, pods)
    dying.kill()
    fleet.wait_done(task)
    assert fleet.started(task) == 2
    assert len(fleet.journal("return")) == 1
    assert [entry["why"] for entry in fleet.journal("gone")] == ["silent"]


@on_every_pool
def test_a_warm_shutdown_ends_what_runs_and_loses_nothing(fleet: Fleet, pool: str) -> None:
    leaving, _ = pods = fleet.start("one", "two", pool=pool, WORKLOAD_CONFIG='{"worker_prefetch_multiplier": 3}')
    tasks = [fleet.send("work", 0.3) for _ in range(12)]
    fleet.wait(lambda: len(fleet.workers.records()) >= 4, "work under way")
    leaving.terminate()
    assert leaving.wait(15.0) == 0, leaving.read_log()[-3000:]
    fleet.wait_done(*tasks)
    assert all(fleet.started(task) == 1 for task in tasks)
    assert {entry["deliveries"] for entry in fleet.journal("take")} == {"0"}
    drained = next(n for n, e in enumerate(fleet.journal()) if e["op"] == "drain")
    member = fleet.journal("drain")[0]["member"]
    assert not [e for e in fleet.journal()[drained:] if e["op"] == "take" and e["member"] == member]
    assert pods[1].running


@on_every_pool
def test_a_frozen_pod_has_no_effect_after_it_wakes_and_takes_only_after_it_joined_anew(fleet: Fleet, pool: str) -> None:
    pods = fleet.start("one", "two", pool=pool)
    task = fleet.send("work", 1.0)
    frozen, _ = holder(fleet, task, pods)
    frozen.pause()
    fleet.wait_done(task)
    assert fleet.started(task) == 2
    old = fleet.journal("return")[0]["member"]
    frozen.resume()
    fleet.wait(lambda: fleet.counts().alive == 2, "both pods alive")
    fleet.wait_done(*[fleet.send("work", 0.2) for _ in range(6)])
    log = fleet.journal()
    gone = next(n for n, entry in enumerate(log) if entry["op"] == "gone" and entry["member"] == old)
    assert {entry["op"] for entry in log[gone + 1 :] if entry["member"] == old} <= {"lost"}
    anew = next(e["member"] for e in log[gone:] if e["op"] == "join" and e["member"].startswith(frozen.name + "#"))
    assert anew != old
    assert len([e for e in log if e["op"] == "ack"]) == 7
    fleet.wait(
        lambda: "had been returned to its queue" in frozen.read_log(), "the warning about the late acknowledgement"
    )


@on_every_pool
def test_a_restart_under_the_same_name_does_not_wait_for_the_ttl(fleet: Fleet, pool: str) -> None:
    ttl_s = 15
    (first,) = fleet.start("pod", pool=pool, THROTTLE_TTL=str(ttl_s))
    task = fleet.send("work", 1.0)
    fleet.wait(lambda: fleet.started(task), "the task's start")
    first.kill()
    (second,) = fleet.start("pod", pool=pool, THROTTLE_TTL=str(ttl_s))
    fleet.wait_done(task)
    assert [entry["why"] for entry in fleet.journal("gone")] == ["superseded"]
    last_beat = max(int(e["at"]) for e in fleet.journal("beat", "join", "take") if e["member"] == old_of(fleet))
    joined = next(int(e["at"]) for e in fleet.journal("join") if e["old"] == old_of(fleet))
    assert joined - last_beat < ttl_s * 1000 * 2 / 3, second.read_log()


def old_of(fleet: Fleet) -> str:
    """The incarnation that was superseded."""
    return next(entry["member"] for entry in fleet.journal("gone"))


def test_a_second_living_process_of_a_name_is_refused_in_one_line(fleet: Fleet) -> None:
    fleet.start("pod", pool="solo")
    (second,) = fleet.workers.start(names=["pod"], app="tests.worker.workload", pool="solo", ready=False)
    assert second.wait(15.0) == 1
    lines = [line for line in second.read_log().splitlines() if "headroom:" in line]
    assert len(lines) == 1
    assert "pod 'pod' already lives in fleet 'default'" in lines[0]
    assert "Traceback" not in second.read_log().partition("headroom:")[2]
    fleet.wait_done(fleet.send("work"))


def restart_redis(fleet: Fleet, pool: str) -> str:
    """Kill Redis under a running task, start it again, see that both pods work; returns the task's id."""
    fleet.start("one", "two", pool=pool)
    task = fleet.send("work", 2.5)
    fleet.wait(lambda: fleet.started(task), "the task's start")
    fleet.client.server.kill()
    fleet.client.server.start()
    fleet.wait_done(*[fleet.send("work", 0.1) for _ in range(4)], timeout_s=40.0)
    fleet.wait(lambda: fleet.counts().alive == 2, "both pods alive")
    assert fleet.violations() == 0
    assert fleet.dead() == []
    return task


def redis_restarts(fleet: Fleet, pool: str) -> None:
    """With its data: the running task is acknowledged after the re-join, and nobody runs it again."""
    task = restart_redis(fleet, pool)
    fleet.wait_done(task)
    assert fleet.started(task) == 1


def redis_forgets(fleet: Fleet, pool: str) -> None:
    """Without its data: what runs is held again until it ends."""
    restart_redis(fleet, pool)
    (hold,) = fleet.journal("hold")
    fleet.wait(
        lambda: any((e["member"], e["id"]) == (hold["member"], hold["id"]) for e in fleet.journal("ack")),
        "the end of what was held again",
    )


test_after_redis_restarted_every_pool_works_again = on_every_pool(
    redis_restarts, {"appendonly": "yes", "appendfsync": "always"}
)
test_after_redis_lost_its_data_every_pool_works_again = on_every_pool(redis_forgets)


@on_every_pool
def test_sigquit_loses_nothing(fleet: Fleet, pool: str) -> None:
    cold, _ = fleet.start("one", "two", pool=pool)
    tasks = [fleet.send("work", 0.5) for _ in range(4)]
    fleet.wait(lambda: fleet.counts().busy >= 1, "work under way")
    cold.send(signal.SIGQUIT)
    fleet.wait_done(*tasks, timeout_s=30.0)
