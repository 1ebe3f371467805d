"""How what is told in a child of the prefork pool reaches those who listen in the worker's main process.

A pipe that is made before the first child: each event is one line of JSON, `[name, value, ...]`, written at once. Lines
of up to `select.PIPE_BUF` bytes are not mixed with those of other children, and longer ones are dropped; so is what
comes while the pipe is full, since no metric is worth a task. A child that dies leaves whole lines or none.

In the main process a thread of the operating system reads, and tells what it reads. It ends with the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
from typing import TYPE_CHECKING, cast

from throttle import events
from throttle.worker import native

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK_BYTES = 65_536


def install() -> None:
    """Begin to listen to the children that this process forks from now on."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def send(event: events.Event, values: Sequence[object]) -> None:
        line = json.dumps([event.name, *values]).encode() + b"\n"
        if len(line) <= select.PIPE_BUF:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(writing, line)

    os.register_at_fork(after_in_child=lambda: events.relay(send))
    native.start(lambda: _listen(reading))


def _listen(reading: int) -> None:
    known = {event.name: event for event in events.EVENTS}
    rest = b""
    while True:
        *lines, rest = (rest + os.read(reading, CHUNK_BYTES)).split(b"\n")
        for line in lines:
            name, *values = cast("list[object]", json.loads(line))
            event = known.get(str(name))
            if event is not None:
                events.emit(event, *values)
