"""A SIGTERM during a start is not lost, wherever it finds the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from app.local.processes import ROOT

START = """
import os, signal, threading, time, weakref
from celery.worker import state
from throttle.worker import ending, signals

class Member:
    pid = os.getpid()
    def leave(self):
        print("left")

class Thing: pass

def terminate(*_):
    os.kill(os.getpid(), signal.SIGTERM)

signals.end_in_order(Member())
"""
IN_A_THREAD = "threading.Thread(target=terminate).start(); time.sleep(60); print('went on')"
LOST = """
thing = Thing()
reference = weakref.ref(thing, terminate)
del thing
print("went on")
"""
PATCHED = "from gevent import monkey\nmonkey.patch_all()\n"


def play(program: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a process that runs this."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("before", ["", PATCHED], ids=["threads", "gevent"])
def test_it_ends_a_start_whatever_runs_at_that_moment(before: str) -> None:
    """On gevent the handler runs in the greenlet that beats, as often as not."""
    assert play(before + START + IN_A_THREAD) == (0, "left\n", "")


@pytest.mark.parametrize("before", ["", PATCHED], ids=["threads", "gevent"])
@pytest.mark.parametrize("after", ["ending.if_asked()", "state.maybe_shutdown()"])
def test_an_exit_that_python_threw_away_comes_at_the_next_look(before: str, after: str) -> None:
    code, output, errors = play(before + START + LOST + after + "\nprint('and on')")
    assert "Exception ignored in" in errors, "it was lost"
    assert (code, output) == (0, "went on\nleft\n")
