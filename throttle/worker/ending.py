"""SIGTERM for a process that starts: nothing was taken yet, so nothing has to be finished, and it ends with 0.

Celery hears signals once its worker is built. Until then the handler is `end`, which raises `SystemExit`. That alone is
not enough, because an exception of a handler may be lost:

- Python throws it away where the signal finds the main thread in a finalizer or in the callback of a weak reference;
- gevent runs handlers in whichever greenlet is running, and one that stands for a thread keeps an exit to itself, as a
  thread does.

So the wish is noted as well, where Celery looks for it before it connects to the broker, and where our own start looks
(`if_asked`). A start that is ended leaves the fleet as the process ends, see `signals.end_in_order`.

Imports nothing of Celery: the image's entry point listens before Celery is there, and before gevent patches anything.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import Any

from throttle.worker import native

_heard: list[int] = []


def listen() -> None:
    """Hear SIGTERM, unless somebody else does. In a thread that is not the main one: do nothing."""
    with contextlib.suppress(ValueError):
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, end)


def end(number: int, _frame: object) -> None:
    """The handler. Raises `SystemExit` in the main thread, on gevent in its main greenlet."""
    _heard.append(number)
    state: Any = sys.modules.get("celery.worker.state")
    if state is not None:
        state.should_stop = 0
    if not native.patched():
        raise SystemExit(0)
    from gevent import get_hub  # noqa: PLC0415 - only where it is used

    get_hub().handle_system_error(SystemExit, SystemExit(0))


def if_asked() -> None:
    """Raise `SystemExit` after all, at a point of the start where it is not lost."""
    if _heard:
        raise SystemExit(0)
