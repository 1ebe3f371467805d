"""The file jobs on real workers: killed at 60 %, they go on at 60 %, and the result is the same to the byte."""
# pyright: basic

from __future__ import annotations

import hashlib
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from celery.states import READY_STATES

import throttle
from tasks.checkpoints import Checkpoint, Limits
from tasks.checkpoints.run import Surroundings
from tasks.jobs.files import Compression
from tasks.jobs.folder import JobFile
from tasks.jobs.packing import METHODS, MIB
from tasks.jobs.resumable import FleetStore
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from app.local.guard import Process
    from tests.support.etcd import Etcd
    from tests.support.workers import Workers

PATIENCE_S = 180.0
SIZES = {"gzip": 32 * MIB, "lzma": 16 * MIB, "checksum": 2048 * MIB}
"""Enough for some seconds of work each, and for several blocks."""


class Jobs:
    """Pods of the application, their jobs folder, and what was saved of their tasks."""

    def __init__(self, workers: Workers, store: str) -> None:
        """Saves come as often as is allowed."""
        self.workers, self.folder = workers, workers.folder
        self.settings = {"CHECKPOINT_STORE": store, "CHECKPOINT_EVERY": "0.1"}
        self.app: Any = Celery("producer", broker=workers.client.url, backend=workers.client.url, set_as_current=False)
        self.app.conf.headroom_checkpoint_store = store
        throttle.install(self.app)

    def start(self, pool: str) -> Process:
        """One pod."""
        return self.workers.start(pool=pool, **self.settings)[0]  # type: ignore[arg-type]

    def send(self, job: str, *args: Any, **options: Any) -> str:
        """Send a job; returns its id."""
        options.setdefault("queue", "task_queue")
        return self.app.send_task(f"tasks.jobs.files.{job}", args, **options).id

    def progress(self, task: str) -> float:
        """What the store says."""
        return next((listed.progress for listed in FleetStore(self.app).list() if listed.task_id == task), 0.0)

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait; on failure the pods' logs tell why it did not come."""
        return wait_until(condition, PATIENCE_S, what=lambda: f"{what}; {self.workers.logs()}", every_s=0.01)

    def end(self, task: str) -> dict[str, Any]:
        """Wait until a task has ended: its state and result."""
        self.wait(lambda: self.app.backend.get_task_meta(task, cache=False)["status"] in READY_STATES, f"{task} to end")
        return self.app.backend.get_task_meta(task, cache=False)

    def went_on_at(self, pod: Process) -> list[float]:
        """Where a pod has taken tasks up, from 0 to 1."""
        return [float(share) / 100 for share in re.findall(r"goes on at ([\d.]+) %", pod.read_log())]


@pytest.fixture
def jobs(request: pytest.FixtureRequest, workers: Workers) -> Iterator[Jobs]:
    """Checkpoints in the store that the test names, else in Redis."""
    store = getattr(request, "param", "redis")
    etcd: Etcd | None = request.getfixturevalue("etcd") if store == "etcd" else None
    made = Jobs(workers, etcd.address if etcd else "redis")
    yield made
    made.app.close()


def fill(path: Path, size: int) -> None:
    """Bytes that look like nothing, four mebibytes of them again and again."""
    chunk = random.Random(1).randbytes(4 * MIB)
    with path.open("wb") as file:
        for _ in range(size // len(chunk)):
            file.write(chunk)


def uninterrupted(folder: Path, method: str) -> bytes:
    """What one run makes of the file `big`, and nothing left behind."""
    packer, ending = METHODS[method]
    with JobFile(folder, "big") as source, Checkpoint(None, Surroundings("t", "t", 1), Limits()) as checkpoint:
        Compression(source, packer, "whole" + ending).run(checkpoint)
    made = folder / f"whole{ending}"
    whole = made.read_bytes()
    made.unlink()
    return whole


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("jobs", "pool", "method"),
    [
        ("redis", "prefork", "gzip"),
        ("etcd", "threads", "gzip"),
        ("etcd", "prefork", "lzma"),
        ("redis", "threads", "lzma"),
    ],
    indirect=["jobs"],
)
def test_compress_killed_at_sixty_percent_goes_on_there(jobs: Jobs, method: str, pool: str) -> None:
    fill(jobs.folder / "big", SIZES[method])
    whole = uninterrupted(jobs.folder, method)
    first = jobs.start(pool)
    task = jobs.send("compress", "big", method)
    jobs.wait(lambda: jobs.progress(task) >= 0.6, "60 %")
    first.kill()
    left = jobs.progress(task)
    second = jobs.start(pool)
    assert jobs.end(task)["status"] == "SUCCESS"
    assert (jobs.folder / f"big{METHODS[method][1]}").read_bytes() == whole
    assert jobs.went_on_at(second) == [pytest.approx(left, abs=0.001)]
    assert not list(jobs.folder.glob(".*.partial"))
    assert not list(FleetStore(jobs.app).list())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("jobs", "pool"), [("etcd", "prefork"), ("redis", "threads")], indirect=["jobs"])
def test_checksum_killed_at_sixty_percent_goes_on_there(jobs: Jobs, pool: str) -> None:
    with (jobs.folder / "big").open("wb") as file:
        file.truncate(SIZES["checksum"])  # holes, which cost no disk
    first = jobs.start(pool)
    task = jobs.send("checksum", "big")
    jobs.wait(lambda: jobs.progress(task) >= 0.6, "60 %")
    first.kill()
    left = jobs.progress(task)
    second = jobs.start(pool)
    ended = jobs.end(task)
    with (jobs.folder / "big").open("rb") as file:
        assert ended["result"]["sha256"] == hashlib.file_digest(file, "sha256").hexdigest()
    assert jobs.went_on_at(second) == [pytest.approx(left, abs=0.001)]


@pytest.mark.timeout(600)
def test_a_soft_limit_keeps_all_but_a_block(jobs: Jobs) -> None:
    fill(jobs.folder / "big", 6 * SIZES["gzip"])
    whole = uninterrupted(jobs.folder, "gzip")
    pod = jobs.start("prefork")
    task = jobs.send("compress", "big", soft_time_limit=2)
    assert type(jobs.end(task)["result"]).__name__ == "SoftTimeLimitExceeded"
    left = jobs.progress(task)
    assert left > 0
    jobs.app.backend.forget(task)
    assert jobs.send("compress", "big", task_id=task) == task
    assert jobs.end(task)["status"] == "SUCCESS"
    assert jobs.went_on_at(pod) == [pytest.approx(left, abs=0.001)]
    assert (jobs.folder / "big.gz").read_bytes() == whole


@pytest.mark.timeout(600)
def test_a_frozen_twin_spoils_nothing(jobs: Jobs) -> None:
    fill(jobs.folder / "big", 2 * SIZES["gzip"])
    whole = uninterrupted(jobs.folder, "gzip")
    twin = jobs.start("prefork")
    task = jobs.send("compress", "big")
    jobs.wait(lambda: jobs.progress(task) >= 0.2, "20 %")
    twin.pause()
    heir = jobs.start("threads")
    jobs.wait(lambda: jobs.went_on_at(heir), "another pod to go on")
    twin.resume()
    jobs.wait(lambda: "this run ends" in twin.read_log(), "the twin to notice")
    assert jobs.end(task)["status"] == "SUCCESS"
    assert (jobs.folder / "big.gz").read_bytes() == whole
    assert not list(jobs.folder.glob(".*.partial"))
