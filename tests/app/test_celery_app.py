"""The Celery application on real workers: producers of both kinds, results, beat, and refusals."""
# pyright: basic

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from celery import Celery

from app.local.processes import ROOT, check_running, start_beat
from tests.support.leaks import leaked_keys
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from app.local.guard import Guard
    from tests.support.workers import Workers


def test_a_producer_with_this_code_calls_delay(workers_on_each: Workers) -> None:
    workers_on_each.start()
    answer = workers_on_each.python(
        "import app.celery\n"
        "from tasks.jobs.loads import sleep\n"
        "print(sleep.delay(0.01).get(timeout=20) >= 0.01)\n"
        "print(sleep.apply_async((0.01,), queue='critical').get(timeout=20) >= 0.01)\n"
    )
    assert answer.split() == ["True", "True"]
    assert [r["queue"] for r in workers_on_each.records() if r["what"] == "start"] == ["task_queue", "critical"]


def test_any_thread_of_a_producer_reaches_this_application(workers: Workers) -> None:
    workers.start()
    answer = workers.python(
        "import threading\n"
        "import app.celery\n"
        "from tasks.jobs.loads import sleep\n"
        "thread = threading.Thread(target=lambda: print(sleep.delay(0.01).get(timeout=20) >= 0.01))\n"
        "thread.start(); thread.join()\n"
    )
    assert answer.split() == ["True"]


def test_a_producer_with_only_the_address_sends_by_name(workers_on_each: Workers) -> None:
    workers_on_each.start()
    url = workers_on_each.client.url
    with Celery(broker=url, backend=url, set_as_current=False) as producer:
        for queue in ("task_queue", "critical"):
            task = producer.send_task("tasks.jobs.loads.sleep", (0.01,), queue=queue)
            assert task.get(timeout=20) >= 0.01


def test_a_producer_that_imports_the_application_opens_no_connection(workers: Workers) -> None:
    """REDIS_URL names a port on which nobody listens; only the sending needs it."""
    answer = workers.python(
        "import app.celery\nfrom tasks.jobs.loads import sleep\nprint(sleep.app.main)",
        REDIS_URL="redis://127.0.0.1:1/0",
    )
    assert answer.split() == ["headroom"]


def test_a_file_is_compressed_in_the_folder_of_the_setting(workers: Workers) -> None:
    (workers.folder / "text").write_text("text " * 1000)
    workers.start()
    answer = workers.python(
        "import app.celery\n"
        "from tasks.jobs.files import compress, checksum\n"
        "print(compress.delay('text').get(timeout=20)['result'])\n"
        "try: checksum.delay('/etc/hostname').get(timeout=20)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    ).splitlines()
    assert answer[0] == "text.gz"
    assert answer[1].startswith("JobFileError refused: '/etc/hostname' is outside the jobs folder")
    assert (workers.folder / "text.gz").exists()


def test_beat_sends_the_pulse_and_a_pod_tells_of_the_fleet(workers: Workers, guard: Guard) -> None:
    (pod,) = workers.start(TASK_TIME_LIMITS="crtical=30/60", TASK_TEMPORARY_ERRORS="requests.ConnectionError")
    placement = replace(workers.placement, settings={**workers.placement.settings, "PULSE_EVERY": "0.2"})
    beat = start_beat(guard, placement)
    wait_until(lambda: "fleet: 1 alive" in pod.read_log(), 20, what="the pulse in the pod's log")
    slips = [line.partition("headroom: ")[2] for line in pod.read_log().splitlines() if "crtical" in line]
    assert slips == [
        "TimeLimits.queues (TASK_TIME_LIMITS) names a queue 'crtical', and this app has none: the nearest is 'critical'"
    ]
    check_running(beat)
    guard.end(beat)


def test_nothing_without_expiry_is_left_by_finished_work(workers: Workers) -> None:
    workers.start()
    workers.python("import app.celery\nfrom tasks.jobs.loads import sleep\nprint(sleep.delay(0).get(timeout=20))")
    fleet = "{headroom:default}:"
    permanent = ["epoch", "names", "seq", "pods:alive", "pods:draining", "pods:busy", "beats", "made", "_kombu*"]
    kept = [fleet + name for name in permanent] + ["_kombu.*"]
    assert leaked_keys(workers.client, kept) == []


BAD = {"REDIS_URL": "nonsense", "TASK_QUEUE": "two words", "THROTTLE_RATIO": "1.5", "THROTTLE_TTL": "abc"}


@pytest.mark.parametrize(("variable", "value"), BAD.items())
@pytest.mark.parametrize("command", ["worker", "beat"])
def test_a_bad_setting_stops_the_command_line_with_one_line(
    workers: Workers, variable: str, value: str, command: str
) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "app.celery", command],
        env=workers.placement.environment(**{variable: value}),
        cwd=workers.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stdout == ""
    (line,) = answer.stderr.strip().splitlines()
    assert line.startswith(f"headroom: {variable}={value!r}: allowed ")


def test_a_bad_setting_is_an_exception_to_a_program(workers: Workers) -> None:
    answer = workers.python(
        "from throttle.errors import ConfigurationError\n"
        "try: import app.celery\n"
        "except ConfigurationError as error: print(error)\n",
        TASK_QUEUE="",
    )
    assert answer.startswith("TASK_QUEUE='': allowed ")


def test_a_worker_refuses_somebody_elses_tasks(workers: Workers, tmp_path: Path) -> None:
    other = tmp_path / "other" / "tasks"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    environment = workers.placement.environment()
    environment["PYTHONPATH"] = f"{other.parent}:{ROOT}"
    answer = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "app.celery", "worker"],
        env=environment,
        cwd=workers.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 1
    (line,) = answer.stderr.strip().splitlines()
    assert line.startswith(f"headroom: the package 'tasks' comes from {other}, not from {ROOT}")
