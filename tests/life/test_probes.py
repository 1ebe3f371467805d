"""The probes of pods on each pool, while their Redis goes, their loop hangs, their processors burn, their disk is full.

Each test asks all probes of all pods all the while: the right one turns, and only that one.
"""
# pyright: basic

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

from app.local.processes import Placement, start_beat
from app.local.proxy import Proxy
from app.local.servers import Server, free_port
from tests.support.probed import STALLS, Probed, Watching
from tests.support.servers import Client, kinds
from tests.support.waiting import wait_until
from tests.support.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from app.local.guard import Guard

POOLS = ("prefork", "threads", "gevent", "solo")
HEALTH_S = float(STALLS["HEALTH_STALL_S"])
INCLUDE = ("--include", "app.local.recorder,tests.life.hangs")
WELL = {"ok"}


class Four:
    """A pod on each pool, on one server, which they reach through one proxy."""

    def __init__(self, guard: Guard, server: Server, folder: Path) -> None:
        """Start them side by side and wait until all are ready."""
        self.server = server
        self.proxy = Proxy(("127.0.0.1", server.port)).start()
        self.client = Client(server)
        self.workers = Workers(guard, self.client, folder)
        self.through = f"redis://127.0.0.1:{self.proxy.port}/0"
        started = [
            Probed.start(
                self.workers, pool, pool=pool, concurrency=1 if pool == "solo" else 2, arguments=INCLUDE, ready=False,
                REDIS_URL=self.through, TASK_QUEUE=pool, CRITICAL_QUEUE=f"critical-{pool}", THROTTLE_FLEET=pool,
            )
            for pool in POOLS
        ]  # fmt: skip
        self.pods = dict(zip(POOLS, started, strict=True))
        self.app = Celery("sender", broker=server.url, set_as_current=False)
        self.are_ready(60)

    def are_ready(self, timeout_s: float = 30.0) -> None:
        """Wait until all pods are well."""
        for pod in self.pods.values():
            for path in ("/startup", "/ready", "/health"):
                pod.wait(path, 200, timeout_s)

    def send(self, pool: str, task: str, *args: Any) -> str:
        """Send a task to the pod on this pool."""
        return self.app.send_task(task, args, queue=pool).id

    def command(self, name: str, *pools: str, **arguments: Any) -> None:
        """Send a remote control command to the pods on these pools."""
        targets = [f"{pool}@local" for pool in pools]
        self.app.control.broadcast(name, arguments=arguments, destination=targets, reply=False)

    def end(self) -> None:
        """Kill everything."""
        self.workers.end()
        self.app.close()
        self.client.close()
        self.proxy.close()
        self.server.kill()


@pytest.fixture(scope="module", params=kinds())
def standing(request: pytest.FixtureRequest, guard: Guard) -> Iterator[Four]:
    """The four, once for each kind of server."""
    made = Four(guard, Server(guard, request.param, options={"appendonly": "yes"}).start(), guard.folder("probes"))
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def four(standing: Four) -> Four:
    """The four, all well."""
    standing.are_ready()
    return standing


def outlasting(seconds: float) -> None:
    """Let trouble last, by the clock: that nothing turns for so long is what the test is about."""
    until_s = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until_s, seconds + 1, every_s=0.1)


def only_ready_turns(four: Four, begin: Callable[[], object], end: Callable[[], object]) -> None:
    """Trouble with the broker turns `/ready` and nothing else, for longer than a loop may stand."""
    with Watching(*four.pods.values()) as watching:
        begin()
        for pod in four.pods.values():
            pod.wait("/ready", 503)
        outlasting(HEALTH_S * 1.5)
        assert all(pod.ask("/ready").status == 503 for pod in four.pods.values())
        end()
        four.are_ready()
    assert watching.states("/health") == dict.fromkeys(POOLS, WELL)
    assert watching.states("/startup") == dict.fromkeys(POOLS, WELL)


def test_redis_is_killed(four: Four) -> None:
    only_ready_turns(four, four.server.kill, four.server.start)


def test_redis_is_frozen(four: Four) -> None:
    only_ready_turns(four, four.server.process.pause, four.server.process.resume)


def test_the_way_to_redis_is_refused(four: Four) -> None:
    def cut() -> None:
        four.proxy.refuse()
        four.proxy.cut()

    only_ready_turns(four, cut, four.proxy.accept)


def test_a_server_that_has_no_connection_left_for_the_consumer(four: Four) -> None:
    """A heartbeat that has its connection goes on, and the consumer connects, in its loop: which does not stand."""
    with Watching(*four.pods.values()) as watching:
        four.client.config_set("maxclients", 1)
        waiting = [found["id"] for found in four.client.client_list() if found["cmd"] == "brpop"]
        assert len(waiting) == len(POOLS)
        for number in waiting:
            four.client.client_kill_filter(_id=number)
        for pod in four.pods.values():
            pod.wait("/ready", 503)
        outlasting(HEALTH_S * 1.5)
        four.client.config_set("maxclients", 10000)
        four.are_ready()
    assert watching.states("/health") == dict.fromkeys(POOLS, WELL)
    assert all("not consuming" in told for told in watching.states("/ready").values())


def test_a_loop_that_stands_turns_ready_and_then_health(four: Four) -> None:
    with Watching(*four.pods.values()) as watching:
        four.command("stand", *POOLS, seconds=HEALTH_S * 2)
        for pod in four.pods.values():
            pod.wait("/ready", 503, state="standing")
        assert watching.states("/health") == dict.fromkeys(POOLS, WELL)
        for pod in four.pods.values():
            answer = pod.wait("/health", 503, state="standing")
            assert "hangs.py" in answer.told["reasons"][0]
        four.are_ready()
    assert watching.states("/startup") == dict.fromkeys(POOLS, WELL)
    assert watching.states("/health") == {pool: {"ok", "standing"} for pool in POOLS}


def test_a_consumer_that_takes_nothing_is_degraded_and_not_dead(four: Four) -> None:
    with Watching(*four.pods.values()) as watching:
        four.command("lose_credit", *POOLS)
        done = len(four.workers.done())
        for pool in POOLS:
            four.send(pool, "tasks.jobs.loads.sleep", 0)
        for pod in four.pods.values():
            pod.wait("/ready", 503, state="degraded")
        outlasting(HEALTH_S)
        assert len(four.workers.done()) == done
        four.command("find_credit", *POOLS)
        four.are_ready()
        four.workers.wait_done(done + len(POOLS))
    assert watching.states("/health") == dict.fromkeys(POOLS, WELL)
    assert watching.states("/ready") == {pool: {"ok", "degraded"} for pool in POOLS}


def test_burning_processors_turn_nothing(four: Four) -> None:
    """Python code on each pool for longer than a loop may stand: on gevent and solo it runs in the loop's thread."""
    done = len(four.workers.done())
    with Watching(*four.pods.values()) as watching:
        for pool in POOLS:
            four.send(pool, "tasks.jobs.loads.burn", HEALTH_S * 1.5)
        four.workers.wait_done(done + len(POOLS), HEALTH_S * 1.5 + 20)
        outlasting(2)
    assert {path: watching.states(path) for path in ("/startup", "/ready", "/health")} == {
        path: dict.fromkeys(POOLS, WELL) for path in ("/startup", "/ready", "/health")
    }


def test_a_task_that_never_yields_is_a_task_and_no_standing_loop(four: Four) -> None:
    done = len(four.workers.done())
    with Watching(*four.pods.values()) as watching:
        for pool in POOLS:
            four.send(pool, "tests.life.hangs.spin", HEALTH_S * 1.5)
        four.workers.wait_done(done + len(POOLS), HEALTH_S * 1.5 + 20)
        outlasting(2)
    assert watching.states("/health") == dict.fromkeys(POOLS, WELL)
    assert watching.states("/ready") == dict.fromkeys(POOLS, WELL)


def test_a_pod_that_was_frozen_is_not_restarted_for_it(four: Four) -> None:
    pods = four.pods.values()
    for pod in pods:
        pod.process.pause()
    outlasting(HEALTH_S * 1.5)
    with Watching(*pods) as watching:
        for pod in pods:
            pod.process.resume()
        four.are_ready()
        outlasting(2)
    assert watching.states("/health") == dict.fromkeys(POOLS, WELL)


def test_a_pod_that_ends_is_not_ready_at_once_while_it_finishes(four: Four, guard: Guard) -> None:
    """The last test: these pods end."""
    for pool in POOLS:
        four.send(pool, "tasks.jobs.loads.sleep", 4)
    for pod in four.pods.values():
        wait_until(lambda pod=pod: pod.metric("headroom_holds") == 1, what="a task to run")
        if pod.process.name == "solo":
            continue  # its loop runs the task, and hears of the signal afterwards
        pod.process.terminate()
        assert pod.wait("/ready", 503, 2).told["state"] == "draining"
        assert pod.ask("/health").status == 200
    four.pods["solo"].process.terminate()
    assert [pod.process.wait(30) for pod in four.pods.values()] == [0] * len(POOLS)


def test_a_full_disk_turns_nothing(guard: Guard, tmp_path: Path) -> None:
    """The folder that pods run in, and the one for temporary files, have no byte left."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "headroom", disk], check=True)
    server = Server(guard).start()
    try:
        with Client(server) as client:
            workers = Workers(guard, client, tmp_path)
            pods = [Probed.start(workers, pool, pool=pool, TMPDIR=str(disk), JOBS_FOLDER=str(disk)) for pool in POOLS]
            with Watching(*pods) as watching:
                (disk / "filler").write_bytes(b"x" * 200_000)
                with pytest.raises(OSError, match="No space left"):
                    (disk / "more").write_bytes(b"x" * 200_000)
                client_app = Celery("sender", broker=server.url, set_as_current=False)
                for _ in range(20):
                    client_app.send_task("tasks.jobs.loads.sleep", (0.1,), queue="task_queue")
                client_app.close()
                workers.wait_done(20)
                outlasting(HEALTH_S * 1.5)
            told = set().union(*watching.told.values())
            assert told == WELL
            workers.end()
    finally:
        server.kill()
        subprocess.run(["umount", disk], check=True)


def test_beat_is_not_dead_while_redis_is(guard: Guard, tmp_path: Path) -> None:
    server, port = Server(guard).start(), free_port()
    settings = {**STALLS, "PROBE_PORT": str(port), "PULSE_EVERY": "1"}
    beat = Probed(start_beat(guard, Placement(server.url, tmp_path, settings)), port)
    beat.wait("/ready", 200)
    assert beat.ask("/startup").status == 200
    with Watching(beat) as watching:
        server.kill()
        beat.wait("/ready", 503, state="broker away")
        outlasting(HEALTH_S * 1.5)
        assert beat.ask("/ready").status == 503
        server.start()
        beat.wait("/ready", 200)
        outlasting(2)
    assert watching.states("/health") == {"beat": WELL}
    assert beat.ask("/metrics").body.count(b"headroom_loop_stood_seconds 0.0") == 1
    beat.process.terminate()
    assert beat.process.wait(20) == 0
    server.kill()


def test_a_killed_child_and_its_pod(guard: Guard, tmp_path: Path) -> None:
    """The port is the main process': children let go of it, so that it is free when that one is killed."""
    server = Server(guard).start()
    with Client(server) as client:
        workers = Workers(guard, client, tmp_path)
        pod = Probed.start(workers, "one", concurrency=2)
        children = subprocess.run(
            ["pgrep", "-P", str(pod.process.pid)], check=True, capture_output=True, text=True
        ).stdout.split()
        assert len(children) >= 2
        pod.process._popen.send_signal(signal.SIGKILL)
        again = Probed(workers.start(names=["one"], PROBE_PORT=str(pod.port), ready=False)[0], pod.port)
        again.wait("/ready", 200, 30)
        workers.end()
    server.kill()
