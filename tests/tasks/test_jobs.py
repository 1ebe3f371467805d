"""The jobs do what they say: called directly, on real workers, and killed half way."""
# pyright: basic

from __future__ import annotations

import gzip
import hashlib
import lzma
import random
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

from tasks.jobs.files import checksum, compress
from tasks.jobs.folder import JobFileError
from tasks.jobs.loads import burn, sleep
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.workers import Workers

TEXT = b"".join(b"%d times around the clock\n" % number for number in range(50_000))
UNPACK = {"gzip": gzip.decompress, "lzma": lzma.decompress}
ENDING = {"gzip": ".gz", "lzma": ".xz"}


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Path]:
    """A jobs folder that the current Celery app names."""
    with Celery("jobs", set_as_current=False) as app:
        app.set_current()
        app.conf.headroom_jobs_folder = str(tmp_path)
        yield tmp_path


@pytest.mark.parametrize("method", ["gzip", "lzma"])
def test_compress_makes_a_file_that_unpacks_to_the_same_bytes(jobs: Path, method: str) -> None:
    (jobs / "text").write_bytes(TEXT)
    answer = compress("text", method)
    packed = (jobs / f"text{ENDING[method]}").read_bytes()
    assert UNPACK[method](packed) == TEXT
    assert answer == {
        "source": "text",
        "result": f"text{ENDING[method]}",
        "source_bytes": len(TEXT),
        "result_bytes": len(packed),
    }
    assert (jobs / "text").read_bytes() == TEXT


@pytest.mark.parametrize("method", ["gzip", "lzma"])
def test_compress_again_writes_the_same_bytes(jobs: Path, method: str) -> None:
    (jobs / "text").write_bytes(TEXT)
    compress("text", method)
    first = (jobs / f"text{ENDING[method]}").read_bytes()
    compress("text", method)
    assert (jobs / f"text{ENDING[method]}").read_bytes() == first


def test_an_empty_file_is_a_file(jobs: Path) -> None:
    (jobs / "empty").touch()
    assert compress("empty")["source_bytes"] == 0
    assert gzip.decompress((jobs / "empty.gz").read_bytes()) == b""
    assert checksum("empty")["sha256"] == hashlib.sha256().hexdigest()


def test_checksum_is_that_of_the_whole_file(jobs: Path) -> None:
    (jobs / "text").write_bytes(TEXT)
    expected = hashlib.sha256(TEXT).hexdigest()
    assert checksum("text") == {"source": "text", "source_bytes": len(TEXT), "sha256": expected}


def test_a_failed_run_leaves_no_partial_file(jobs: Path) -> None:
    (jobs / "text").write_bytes(TEXT)
    (jobs / "text.gz").mkdir()
    with pytest.raises(OSError, match=r"directory"):
        compress("text")
    assert {path.name for path in jobs.iterdir()} == {"text", "text.gz"}


def test_bad_arguments_are_refused_in_one_line(jobs: Path) -> None:
    with pytest.raises(JobFileError, match=r"unknown method 'zip': allowed are gzip, lzma"):
        compress("text", "zip")
    with pytest.raises(JobFileError, match=r"refused"):
        checksum("/etc/hostname")


def test_without_a_folder_no_file_is_touched(jobs: Path) -> None:
    with Celery("none", set_as_current=False) as app:
        app.set_current()
        with pytest.raises(JobFileError, match="set JOBS_FOLDER"):
            checksum("text")


@pytest.mark.parametrize("seconds", [-1, "abc", None, float("nan"), float("inf"), 1e9])
def test_loads_refuse_what_is_no_length_of_time(seconds: Any) -> None:
    for load in (sleep, burn):
        with pytest.raises(ValueError, match="allowed is 0 to 86400"):
            load(seconds)


def test_loads_last_as_long_as_asked() -> None:
    assert 0.05 <= sleep(0.05) < 1
    assert burn(0.05) > 0


@pytest.mark.timeout(90)
def test_a_kill_half_way_leaves_a_partial_file_that_the_next_run_replaces(workers: Workers) -> None:
    source = random.Random(0).randbytes(8 * 1024 * 1024)
    (workers.folder / "big").write_bytes(source)
    (first,) = workers.start()
    with Celery("producer", broker=workers.client.url, backend=workers.client.url) as producer:
        task = producer.send_task("tasks.jobs.files.compress", ("big", "lzma"), queue="task_queue")
        wait_until(lambda: task.state == "PROGRESS", 20, what="the task's progress")
        assert task.info["total_bytes"] == len(source)
        assert 0 < task.info["done_bytes"] < len(source)
        first.kill()
        assert not (workers.folder / "big.xz").exists()
        (left,) = workers.folder.glob(".big.xz.*.partial")

        workers.start()
        again = producer.send_task("tasks.jobs.files.compress", ("big", "gzip"), queue="task_queue")
        assert again.get(timeout=60)["source_bytes"] == len(source)
        assert task.get(timeout=60)["source_bytes"] == len(source)
    assert not left.exists()
    assert lzma.decompress((workers.folder / "big.xz").read_bytes()) == source
    assert not list(workers.folder.glob(".*.partial"))
