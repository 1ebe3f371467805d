"""The probes: what is decided from which facts, how it is served, and a real pod that is asked while it works."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import throttle.worker.telling as telling_of_it
from app.local.servers import free_port
from app.probes.backlog import Backlog, Lanes, admitted
from app.probes.metrics import Metrics
from app.probes.server import json_answer, listen, serve
from app.probes.verdicts import Facts, Limits, health, ready, startup
from app.probes.watching import Loop, WorkerWatch, place
from tests.support.probed import Probed, Watching, ask
from tests.support.waiting import wait_until
from throttle import events
from throttle.answers import Counts
from throttle.errors import ConfigurationError
from throttle.keys import Keys
from throttle.scripts import Operations, Rule

if TYPE_CHECKING:
    from tests.support.servers import Client
    from tests.support.workers import Workers

LIMITS = Limits(ready_stall_s=30, health_stall_s=60)
WELL = Facts(started=True, consuming=True)


# ---------------------------------------------------------------- decisions


@pytest.mark.parametrize(
    ("facts", "startup_state", "ready_state", "health_state"),
    [
        (WELL, "ok", "ok", "ok"),
        (Facts(member=False), "starting", "starting", "ok"),
        (Facts(), "starting", "starting", "ok"),
        (WELL._replace(draining=True), "ok", "draining", "ok"),
        (WELL._replace(broker_away=True), "ok", "broker away", "ok"),
        (WELL._replace(broker_away=True, consuming=False, beat_age_s=600), "ok", "broker away", "ok"),
        (WELL._replace(consuming=False), "ok", "not consuming", "ok"),
        (WELL._replace(member=False), "ok", "not a member", "ok"),
        (WELL._replace(beat_age_s=30.1), "ok", "silent", "ok"),
        (WELL._replace(beat_age_s=29.9), "ok", "ok", "ok"),
        (WELL._replace(beat_age_s=600, in_task=True, stand_in=True), "ok", "ok", "ok"),
        (WELL._replace(beat_age_s=600, in_task=True), "ok", "silent", "ok"),
        (WELL._replace(beat_age_s=600, stand_in=True), "ok", "silent", "ok"),
        (WELL._replace(untaken_s=29.9), "ok", "ok", "ok"),
        (WELL._replace(untaken_s=30), "ok", "degraded", "ok"),
        (WELL._replace(untaken_s=86400), "ok", "degraded", "ok"),
        (WELL._replace(stood_s=29.9), "ok", "ok", "ok"),
        (WELL._replace(stood_s=30), "ok", "standing", "ok"),
        (WELL._replace(stood_s=60), "ok", "standing", "standing"),
        (WELL._replace(stood_s=60, started=False), "starting", "starting", "ok"),
        (WELL._replace(shards_stood_s=29.9), "ok", "ok", "ok"),
        (WELL._replace(shards_stood_s=30), "ok", "shards standing", "ok"),
        (WELL._replace(shards_stood_s=60), "ok", "shards standing", "shards standing"),
    ],
)
def test_which_probe_turns_for_what(facts: Facts, startup_state: str, ready_state: str, health_state: str) -> None:
    verdicts = (startup(facts), ready(facts, LIMITS), health(facts, LIMITS))
    assert [v.body()["state"] for v in verdicts] == [startup_state, ready_state, health_state]
    assert [v.ok for v in verdicts] == [startup_state == "ok", ready_state == "ok", health_state == "ok"]
    assert all(bool(v.body()["reasons"]) is not v.ok for v in verdicts)


def test_a_standing_loop_is_told_with_its_place() -> None:
    (reason,) = health(WELL._replace(stood_s=61.4, stands_in="a.py:3 wait"), LIMITS).body()["reasons"]
    assert reason == "its loop has stood still for 61 s, in a.py:3 wait"


# ---------------------------------------------------------------- the loop


class Watched:
    """A loop whose clock the test moves."""

    def __init__(self) -> None:
        """It turns now, in this thread."""
        self.loop = Loop(threading.get_ident())
        self.zero_s = self.loop.turned_s

    def look(self, *seconds: float, excused: bool = False) -> float:
        """Look at these times, and say for how long it has stood at the last."""
        for each in seconds:
            self.loop.look(self.zero_s + each, excused=excused)
        return round(self.loop.stood_s(self.zero_s + seconds[-1]))


def test_a_loop_stands_from_its_last_turn() -> None:
    assert Watched().look(*range(1, 41)) == 40


def test_time_with_an_excuse_does_not_count() -> None:
    watched = Watched()
    assert watched.look(*range(1, 10)) == 9
    assert watched.look(*range(10, 101), excused=True) == 0
    assert watched.look(*range(101, 110)) == 9


def test_time_in_which_nobody_looked_does_not_count() -> None:
    assert Watched().look(1, 2, 600) == 0
    assert Watched().look(1, 2, 600, 601, 602, 603) == 3


def test_a_task_in_the_loops_own_thread_is_an_excuse() -> None:
    def trace_task() -> tuple[float, bool]:
        return watched.look(*range(1, 101)), watched.loop.in_task

    watched = Watched()
    ours = compile("def trace_task(f): return f()", "site-packages/celery/app/trace.py", "exec")
    names: dict[str, Any] = {}
    exec(ours, names)  # noqa: S102 - a frame that looks like Celery's
    assert names["trace_task"](trace_task) == (0, True)
    assert trace_task()[1] is False, "a function of that name elsewhere is none"


def test_a_task_is_no_excuse_where_the_thread_turns_and_the_loop_does_not() -> None:
    """As on gevent, where tasks run beside a consumer that hangs."""
    names: dict[str, Any] = {}
    exec(compile("def trace_task(f): return f()", "/x/celery/app/trace.py", "exec"), names)  # noqa: S102 - as above
    watched = Watched()

    def look() -> float:
        stood_s = 0.0
        for second in range(1, 101):
            watched.loop.thread_turned_s = watched.zero_s + second - 0.5
            stood_s = watched.look(second)
        return stood_s

    assert names["trace_task"](look) == 100


def test_a_loop_that_connects_does_not_stand() -> None:
    watch = WorkerWatch(lambda: None)
    watch.turn()
    zero_s = watch.loop.turned_s

    def stood_s(*seconds: int) -> float:
        for second in seconds:
            watch.look(zero_s + second)
        return round(watch.loop.stood_s(zero_s + seconds[-1]))

    assert stood_s(*range(1, 11)) == 10
    watch.connecting = 1
    assert stood_s(*range(11, 101)) == 0
    watch.connecting = 0
    assert stood_s(*range(101, 111)) == 10


def test_where_a_thread_is_that_has_ended() -> None:
    assert place(None) == ("", False)


# ---------------------------------------------------------------- the backlog


@pytest.mark.parametrize(
    ("busy", "holds", "critical", "normal", "expected"),
    [
        (0, False, 0, 0, False),
        (3, False, 0, 1, True),
        (4, False, 0, 1, False),
        (4, True, 0, 1, True),
        (5, True, 0, 1, False),
        (5, False, 1, 0, True),
    ],
)
def test_whether_the_rule_would_let_this_pod_take(
    *, busy: int, holds: bool, critical: int, normal: int, expected: bool
) -> None:
    counts = Counts(alive=5, busy=busy, capacity=4, draining=0, silent=0, waiters=0, parked=0, dead=0)
    assert admitted(counts, holds=holds, critical=critical, normal=normal) is expected


class Pod:
    """A pod as the backlog sees it, on a real server."""

    def __init__(self, client: Client) -> None:
        """It is free, has taken nothing, and consumes one queue of each lane."""
        self.operations = Operations(client, Keys(), Rule(0.8, 30000, 5))
        self.operations.join("pod#1")
        self.number, self.free, self.keeper = 1, True, False

    def taken(self) -> int:
        return self.number

    def lanes(self) -> Lanes:
        return Lanes(("critical",), ("normal", "normal\x06\x163"))

    def is_free(self) -> bool:
        return self.free

    def holds(self) -> bool:
        return False

    def keeps_door(self) -> bool:
        return self.keeper


def test_messages_that_this_pod_might_take_and_does_not(server: Client) -> None:
    pod = Pod(server)
    backlog = Backlog(pod, 30)

    def looked(now_s: float) -> float:
        backlog.look(now_s)
        return backlog.untaken_s(now_s)

    assert [looked(0), looked(5)] == [0, 0], "nothing waits"
    server.lpush("normal\x06\x163", "m")
    assert [looked(10), looked(15), looked(40)] == [0, 5, 30]
    pod.number += 1
    assert [looked(45), looked(50), looked(55)] == [0, 0, 5], "it took something"
    pod.free = False
    assert [looked(60), looked(65)] == [0, 0], "no place is free"
    pod.free = True
    assert [looked(70), looked(75)] == [0, 5]
    pod.operations.join("other#1")
    pod.operations.acquire("other#1", 1)
    assert [looked(80), looked(85)] == [0, 0], "another pod is busy, and the fleet at its capacity"
    server.lpush("critical", "m")
    assert [looked(90), looked(95)] == [0, 5], "which is nothing to the critical lane"
    assert backlog.fleet is None
    pod.keeper = True
    backlog.look(100)
    assert backlog.fleet is not None
    assert backlog.fleet.queued == {"critical": 1, "normal": 1}


# ---------------------------------------------------------------- serving


class Said:
    """Answers with its path, and counts the looks."""

    def __init__(self) -> None:
        self.looks = 0

    def look(self, now_s: float) -> None:
        assert now_s > 0
        self.looks += 1

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        if path == "/broken":
            raise ValueError(path)
        return json_answer(503 if path == "/no" else 200, {"path": path, "accept": accept})


@pytest.fixture
def said() -> tuple[int, Said]:
    """A server, and what it asks."""
    answers, listening = Said(), listen(0)
    port = listening.getsockname()[1]
    serve(listening, answers)
    return port, answers


def test_paths_are_answered_on_both_families_with_their_status(said: tuple[int, Said]) -> None:
    port, answers = said
    assert ask(port, "/ready?verbose", Accept="text/plain").told == {"path": "/ready", "accept": "text/plain"}
    assert ask(port, "/no").status == 503
    if socket.has_dualstack_ipv6():
        with socket.create_connection(("::1", port), timeout=5) as raw:
            raw.sendall(b"HEAD /ready HTTP/1.1\r\nHost: x\r\n\r\n")
            head = b"".join(iter(lambda: raw.recv(4096), b""))
        assert head.startswith(b"HTTP/1.0 200")
        assert head.endswith(b"\r\n\r\n"), "HEAD has no body"
    wait_until(lambda: answers.looks > 3, what="looks")


def test_a_client_that_says_nothing_or_too_much_holds_up_nobody(said: tuple[int, Said]) -> None:
    port, _ = said
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    try:
        silent[0].sendall(b"x" * 100_000)
        silent[1].sendall(b"GET /rea")
        assert [ask(port, "/ready").status for _ in range(5)] == [200] * 5
        assert ask(port, "/ready").took_s < 1
    finally:
        for each in silent:
            each.close()
    assert ask(port, "/ready").status == 200


def test_a_taken_port_is_refused_in_one_line() -> None:
    with listen(0) as listening, pytest.raises(ConfigurationError) as caught:
        listen(listening.getsockname()[1])
    assert str(caught.value).endswith("address already in use; allowed is a free port from 1 to 65535, or 0 (off)")


def test_a_worker_whose_port_is_taken_does_not_start(workers: Workers) -> None:
    with listen(0) as listening:
        port = listening.getsockname()[1]
        (pod,) = workers.start(ready=False, PROBE_PORT=str(port))
        assert pod.wait(30) == 1
    assert pod.read_log().strip() == (
        f"headroom: PROBE_PORT='{port}': address already in use; allowed is a free port from 1 to 65535, or 0 (off)"
    )


def test_the_app_is_imported_without_what_only_a_pod_needs() -> None:
    program = "import app.celery, sys; print('prometheus_client' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert answer.stdout == "False\n"


# ---------------------------------------------------------------- events and metrics


@pytest.fixture
def metrics() -> Any:
    """Metrics that hear the events of this process."""
    made = Metrics()
    events.subscribe(made.hear)
    yield made
    events.unsubscribe(made.hear)


def series(page: bytes) -> dict[str, float]:
    """Name and labels -> value, by Prometheus' own parser."""
    return {
        sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name.startswith("headroom_")
    }


def test_every_event_becomes_its_metrics(metrics: Metrics) -> None:
    values: dict[str, Any] = {"seconds": 0.3, "deliveries": 2, "events": 1}
    for event in events.EVENTS:
        events.emit(event, *[values.get(name, name) for name in event.fields])
    found = series(metrics.page("")[1])
    for event in events.EVENTS:
        for metric in event.metrics:
            labels = "".join(f" {label}" for label in sorted(metric.labels))
            name = metric.name + ("_count" if metric.kind == "histogram" else "")
            assert found[name + labels] == 1, metric


def test_names_follow_the_conventions_and_labels_are_fields() -> None:
    made = [(event, metric) for event in events.EVENTS for metric in event.metrics]
    every = [metric for _, metric in made] + [*events.READINGS]
    assert len({metric.name for metric in every}) == len(every)
    for metric in every:
        assert metric.name.startswith("headroom_")
        assert (metric.kind == "counter") is metric.name.endswith("_total")
        assert (metric.kind == "histogram") is metric.name.endswith("_seconds") or metric.kind == "gauge"
        assert metric.text.endswith(".")
    for event, metric in made:
        assert {*metric.labels, *filter(None, [metric.value])} <= set(event.fields)
        assert not {"task_id", "id", "pod", "member"} & set(metric.labels)


def test_a_listener_that_fails_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[object] = []

    def fails(*_: object) -> None:
        raise ValueError("no")

    def hears(event: events.Event, values: object) -> None:
        heard.append((event.name, values))

    for listener in (fails, hears, hears):
        events.subscribe(listener)
    try:
        events.emit(events.DENIED, "normal")
    finally:
        events.unsubscribe(fails)
        events.unsubscribe(hears)
    assert heard == [("denied", ("normal",))]
    assert "a listener failed at the event denied" in caplog.text
    events.emit(events.DENIED, "normal")
    assert len(heard) == 1


def test_a_message_tells_when_it_was_sent_and_a_retry_anew() -> None:
    headers: dict[str, Any] = {telling_of_it.SENT: 1.0}
    telling_of_it.stamp(headers=headers)
    assert abs(headers[telling_of_it.SENT] - time.time()) < 60


# ---------------------------------------------------------------- a real pod

QUICK_S = 0.05
"""So quick are 99 of 100 answers on a machine of one's own (`./run bench probes`); here others may be at work too."""
ENDS = {"succeeded": 20.0, "failed": 2.0}


def test_a_pod_is_asked_while_it_starts_burns_and_ends(workers: Workers) -> None:
    """Prefork on two busy processors: answers stay quick, every task is counted once, and the end is told at once."""
    pod = Probed.start(workers, "one", concurrency=2, ready=False)
    assert pod.wait("/startup", 503).told["state"] == "starting"
    pod.wait("/startup", 200)
    assert pod.ask("/elsewhere").status == 404
    workers.python(
        "import app.celery; from tasks.jobs.loads import burn, sleep\n"
        "for _ in range(20): sleep.delay(0)\n"
        "for _ in range(2): sleep.delay(-1)\n"
    )
    for outcome, count in ENDS.items():
        wait_until(
            lambda outcome=outcome, count=count: pod.metric("headroom_tasks_total", outcome=outcome) == count,
            what=lambda: f"{ENDS}: {pod.ask('/metrics').body.decode()}",
        )
    assert pod.metric("headroom_deliveries_total", queue="task_queue", lane="normal") == 22
    assert pod.metric("headroom_run_seconds_count", task="tasks.jobs.loads.sleep") == 22
    assert pod.metric("headroom_wait_seconds_count", queue="task_queue") == 22
    assert pod.metric("headroom_take_seconds_count", answer="message") == 22
    assert pod.metric("headroom_places") == 2
    assert pod.metric("headroom_ready") == 1
    pod.wait("/ready", 200)
    workers.python("import app.celery; from tasks.jobs.loads import burn\nfor _ in range(2): burn.delay(5)")
    wait_until(lambda: pod.metric("headroom_places_busy") == 2, what="two to burn")
    with Watching(pod) as watching:
        took_s = sorted(pod.ask("/ready").took_s for _ in range(200))
        assert pod.metric("headroom_places_busy") == 2, "they burned all the while"
        pod.process.terminate()
        assert pod.wait("/ready", 503, 3).told["state"] == "draining"
        assert watching.states("/health") == {"one": {"ok"}}
    assert sum(each > QUICK_S for each in took_s) <= len(took_s) / 20, took_s[-10:]
    assert pod.process.wait(30) == 0


def test_the_fleets_numbers_come_from_its_doorkeeper_alone(workers: Workers, valkey: Client) -> None:
    ports = [free_port(), free_port()]
    pods = [
        Probed(workers.start(names=[f"pod-{port}"], PROBE_PORT=str(port), READY_STALL_S="2", ready=False)[0], port)
        for port in ports
    ]
    for pod in pods:
        pod.wait("/ready", 200)

    def tellers() -> int:
        return sum(pod.metric("headroom_fleet_pods", state="living") == 2 for pod in pods)

    wait_until(lambda: tellers() == 1, 20, what="one pod to tell of two")
    assert sum(b"headroom_fleet_" in pod.ask("/metrics").body for pod in pods) == 1
    keeper = next(pod for pod in pods if b"headroom_fleet_pods" in pod.ask("/metrics").body)
    keeper.process.kill()
    (other,) = [pod for pod in pods if pod is not keeper]
    wait_until(lambda: other.metric("headroom_fleet_pods", state="living") == 1, 20, what="the other to take over")
