"""A worker in a thread of a process that is something else, as in the tests of an app: that process goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.worker.test_ending import play

if TYPE_CHECKING:
    from tests.support.servers import Client

HOST = """
import sys, threading, time
from celery import Celery
from celery.contrib.testing.worker import start_worker
import throttle
from throttle.worker import drain

drain.LINGER_S = 0.3
app = Celery("host", broker=sys.argv[1], set_as_current=False)
throttle.install(app)
done = threading.Event()

@app.task
def add(one, other):
    print(one + other, flush=True)
    done.set()

with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=20):
    add.delay(2, 3)
    done.wait(20)
time.sleep(drain.LINGER_S * 5)
print("goes on")
"""


def test_the_host_of_a_worker_that_has_ended_goes_on(valkey: Client) -> None:
    code, output, errors = play(HOST, valkey.url)
    assert (code, output) == (0, "5\ngoes on\n"), errors
