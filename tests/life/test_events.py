"""Events of a drain and of checkpoints, from where they happen to the metrics of a pod, on every pool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from app.local.processes import ROOT
from tests.support.probed import Probed
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.workers import Workers

TASK = "tasks.jobs.files.compress"
SEND = "import app.celery\nfrom tasks.jobs.files import compress\nprint(compress.delay('noise').id)"
LOADS, SAVES = "headroom_checkpoint_loads_total", "headroom_checkpoint_saves_total"
DRAINS, DRAIN_S = "headroom_drains_total", "headroom_drain_seconds_count"


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent", "solo"])
def test_checkpoints_and_drains_are_counted_where_they_happen(workers: Workers, pool: str) -> None:
    (workers.folder / "noise").write_bytes(os.urandom(30_000_000))
    settings = {"CHECKPOINT_EVERY": "0.1", "TMPDIR": str(workers.folder)}
    first = Probed.start(workers, "first", pool=pool, **settings)
    workers.python(SEND)
    wait_until(lambda: first.metric(SAVES, task=TASK, outcome="saved") > 1, 60, what=workers.logs)
    assert (first.metric(LOADS, task=TASK, outcome="none"), first.metric(LOADS)) == (1, 1)
    first.process.kill()
    second = Probed.start(workers, "second", pool=pool, ready=False, **settings)
    wait_until(lambda: second.metric(LOADS, task=TASK, outcome="found") == 1, 60, what=workers.logs)
    wait_until((workers.folder / "noise.gz").exists, 60, what=workers.logs)
    assert (second.metric(SAVES), second.metric("headroom_checkpoint_save_seconds_count")) == (
        second.metric(SAVES, outcome="saved"),
        second.metric(SAVES),
    )
    assert second.metric(DRAINS) == 0
    drained = subprocess.run(
        [sys.executable, "-m", "app", "drain", "--wait", "--json"],
        env=os.environ | workers.placement.environment(POD_NAME="second", TMPDIR=str(workers.folder)),
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert json.loads(drained)["state"] == "dry"
    wait_until(lambda: second.metric(DRAIN_S, outcome="dry") == 1, what="the end of the drain")
    assert (second.metric(DRAINS, cause="command"), second.metric(DRAINS), second.metric(DRAIN_S)) == (1, 1, 1)
