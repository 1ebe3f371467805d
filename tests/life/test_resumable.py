"""Resumable tasks on real workers: frozen, expired, seen from outside, with etcd that goes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from app.local.processes import ROOT
from tests.tasks.bench import APP, COUNT, PATIENCE_S, SECONDS, Bench, bench
from throttle.keys import Keys

if TYPE_CHECKING:
    from tests.support.etcd import Etcd
    from tests.support.workers import Workers

__all__ = ["bench"]


def test_what_expired_meanwhile_is_compensated_before_it_starts_anew(bench: Bench) -> None:
    (pod,) = bench.start("prefork")
    task = bench.send(COUNT, SECONDS)
    bench.wait_at(0.3, task)
    pod.kill()
    bench.workers.client.delete(Keys().checkpoint(task))
    (heir,) = bench.start("prefork")
    assert bench.wait_end(task)["result"] == COUNT
    assert bench.trace(task, "compensated") == ["it has expired, or none was saved"]
    assert bench.trace(task, "begun") == ["0", "0"]
    assert "compensate() is called, then it starts anew" in heir.read_log()


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_drain_at_its_deadline_saves_the_last_step_and_another_pod_goes_on(bench: Bench, pool: str) -> None:
    bench.settings |= {"THROTTLE_DRAIN_TIMEOUT": "0.5"}
    (pod,) = bench.start(pool)
    task = bench.send(COUNT, SECONDS)
    bench.wait_at(0.3, task)
    pod.terminate()
    bench.wait(lambda: not pod.running, "the pod to end")
    taken = len(bench.steps(task))
    assert 0.3 * COUNT <= taken < COUNT
    bench.start("threads")
    bench.assert_done(task, at_least=0.3)
    assert len(bench.steps(task)) - COUNT <= 1
    assert bench.trace(task, "compensated") == []


def test_a_frozen_twin_ends_when_it_wakes_and_changes_nothing(bench: Bench) -> None:
    (twin,) = bench.start("prefork")
    task = bench.send(COUNT, 0.1)
    bench.wait_at(0.2, task)
    twin.pause()
    bench.start("threads")
    bench.wait(lambda: len(bench.trace(task, "begun")) == 2, "another pod to take the task")
    twin.resume()
    bench.wait(lambda: "this run ends" in twin.read_log(), "the twin to notice")
    bench.assert_done(task, at_least=0.2)
    assert "succeeded" not in twin.read_log()


def test_progress_is_in_the_state_in_the_list_and_in_the_events(bench: Bench) -> None:
    bench.workers.start(names=["seen"], app=APP, arguments=["--events"], **bench.settings)
    seen: list[dict[str, Any]] = []
    with bench.app.connection_for_read() as connection:
        receiver = bench.app.events.Receiver(connection, handlers={"task-progress": seen.append})
        task = bench.send(COUNT, 10 * SECONDS)
        bench.wait(lambda: bench.meta(task)["status"] == "PROGRESS", "the state")
        for _ in receiver.itercapture(limit=None, timeout=PATIENCE_S, wakeup=False):
            if seen:
                break
        assert 0 < bench.meta(task)["result"]["progress"] < 1
    assert 0 < seen[0]["progress"] < 1
    assert seen[0]["result"].endswith(" %")
    answers = {
        option: subprocess.run(
            [sys.executable, "-m", "app", "checkpoints", *option],
            env=os.environ | bench.workers.placement.environment(),
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout
        for option in ((), ("--json",))
    }  # fmt: skip
    (listed,) = json.loads(answers["--json",])
    assert (listed["id"], listed["task"], listed["status"]) == (task, f"{APP}.steps", "running")
    assert 0 < listed["progress"] < 1
    assert listed["age_s"] < PATIENCE_S
    assert answers[()].splitlines()[0].split() == ["ID", "TASK", "STATUS", "PROGRESS", "AGE", "BYTES"]
    assert task in answers[()].splitlines()[1]


def test_with_etcd_a_kill_costs_one_interval_and_an_outage_one_line(workers: Workers, own_etcd: Etcd) -> None:
    bench = Bench(workers, own_etcd.address)
    (pod,) = bench.start("prefork")
    task = bench.send(COUNT, SECONDS)
    bench.wait_at(0.3, task)
    pod.kill()
    (heir,) = bench.start("threads")
    bench.wait(lambda: len(bench.trace(task, "begun")) == 2, "the next run")
    own_etcd.kill()
    bench.assert_done(task, at_least=0.3)
    assert heir.read_log().count("checkpoints cannot be saved") == 1
    assert "left to expire" in heir.read_log()
    bench.app.close()
