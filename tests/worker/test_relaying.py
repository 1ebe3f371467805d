"""Events that are told in a child of the pool, heard in the process that forked it."""

from __future__ import annotations

import subprocess
import sys

from app.local.processes import ROOT

PROGRAM = """
import os, sys, time
from throttle import events
from throttle.worker import relaying

heard = []
events.subscribe(lambda event, values: heard.append((event.name, list(values))))
relaying.install()
for child in range(3):
    pid = os.fork()
    if pid == 0:
        for number in range(200):
            events.emit(events.CHECKPOINT_SAVED, f"task-{child}", "saved", number, 0.5)
        events.emit(events.CHECKPOINT_SAVED, "x" * 5000, "saved", 0, 0.5)  # longer than a whole write
        os._exit(0)
    os.waitpid(pid, 0)
grandchild = os.fork()
if grandchild == 0:
    events.emit(events.CHECKPOINT_LOADED, "last", "none")
    os.kill(os.getpid(), 9)
os.waitpid(grandchild, 0)
until = time.monotonic() + 20
while not heard or heard[-1][1][0] != "last":
    if time.monotonic() > until:
        sys.exit(f"heard {len(heard)}")
    time.sleep(0.01)
assert heard[:600] == [
    ("checkpoint saved", [f"task-{child}", "saved", number, 0.5]) for child in range(3) for number in range(200)
], heard[:5]
assert heard[600:] == [("checkpoint loaded", ["last", "none"])], heard[600:]
"""

FULL = """
import os
from throttle import events
from throttle.worker import native, relaying

native.start = lambda run: None  # nobody reads
relaying.install()
pid = os.fork()
if pid == 0:
    for number in range(20_000):
        events.emit(events.CHECKPOINT_SAVED, "task", "saved", number, 0.5)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""


def run(program: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def test_each_event_of_a_child_is_heard_once_whole_and_in_its_order() -> None:
    run(PROGRAM)


def test_a_pipe_that_nobody_reads_holds_no_task_up() -> None:
    run(FULL)
