"""Ways to hang a worker that real ones have found: its loop stands, or turns and takes nothing. By remote control."""
# pyright: basic

from __future__ import annotations

import ctypes
from typing import Any

from celery import shared_task
from celery.worker.control import control_command


@control_command(args=[("seconds", float)])
def stand(_state: Any, seconds: float) -> None:
    """Stand in the loop's thread, in C code that lets go of Python's lock; gevent's hub stands with it."""
    ctypes.CDLL(None).usleep(int(seconds * 1e6))


@control_command()
def lose_credit(state: Any) -> None:
    """Believe that nothing more may be fetched, as after a reconnect that miscounted."""
    state.consumer.task_consumer.channel.has_credit = lambda: False


@control_command()
def find_credit(state: Any) -> None:
    """Be well again."""
    del state.consumer.task_consumer.channel.has_credit
    state.consumer.app.throttle.driver.host.wake()


@shared_task
def spin(seconds: float) -> None:
    """Keep the thread that runs this busy in C code that lets go of Python's lock; on gevent no greenlet runs."""
    ctypes.CDLL(None).usleep(int(seconds * 1e6))
