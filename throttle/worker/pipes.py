# pyright: basic
"""The pipes through which the processes of a prefork pool answer: what came halfway, and what is no answer.

Celery reads an answer in pieces, by a generator that it registers with its hub in place of the pipe's reader. Two
things go wrong there, and both end the worker, or leave it behind as a corpse whose heart beats on:

- The hub is reset when the connection to the broker is lost, and the pipe's reader registered anew. A generator that
  had read a part is forgotten, and the rest of its answer is taken for the beginning of another one. Here the part is
  kept by the pipe, and the next look goes on with it.
- An answer that cannot be read raises out of the worker's loop. Nobody can tell where the next one begins, but each
  process has a pipe of its own: so that process is ended, as if it had crashed. Its task comes back, counted as one
  delivery, and the pool starts another process. The others work on.

A shutdown finishes what is halfway as Celery does by itself: for that the generator is handed back to the hub.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)


class GarbledAnswer(Exception):
    """What a process of the pool wrote is no answer."""


def load(source: Any) -> Any:
    """Unpickle an answer; raises `GarbledAnswer`."""
    try:
        return pickle.load(source)  # noqa: S301 - written by a child of this process
    except Exception as error:
        raise GarbledAnswer(repr(error)) from error


def keep_answers_whole(pool: Any) -> None:
    """Have a prefork pool read its pipes as the module says. Before its hub runs; safe to repeat."""
    handler = getattr(pool, "_result_handler", None)
    if handler is None or hasattr(handler, "halfway"):
        return
    handler.halfway = halfway = {}
    finish = handler._finish_partial_read

    def finish_partial_read(fd: int, process: Any) -> Any:
        proc, answer = halfway.pop(fd, (None, None))
        if proc is process and handler._hub is not None:
            handler._hub.readers[fd] = (answer, ())
        return finish(fd, process)

    def make_process_result(hub: Any) -> Callable[[int], None]:
        return _reader(hub, handler, halfway)

    handler._finish_partial_read = finish_partial_read
    handler._make_process_result = make_process_result


def _reader(hub: Any, handler: Any, halfway: dict[int, tuple[Any, Iterator[None]]]) -> Callable[[int], None]:
    """What the hub calls when a pipe has something to read."""

    def on_result_readable(fd: int) -> None:
        process = handler.fileno_to_outq.get(fd)
        if process is None:  # it is gone
            halfway.pop(fd, None)
            hub.remove_reader(fd)
            return
        owner, answer = halfway.pop(fd, (process, None))
        if answer is None or owner is not process:  # the number of an ended process' pipe is used again
            answer = handler._recv_message(hub.add_reader, fd, handler.on_state_change, load=load)
        try:
            next(answer)
        except StopIteration:
            pass
        except GarbledAnswer as error:
            logger.error(  # noqa: TRY400 - the traceback would tell of this module alone
                "headroom: what pool process %d answered cannot be read (%s): it is ended, its task comes back",
                process.pid,
                error,
            )
            hub.remove_reader(fd)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        except (OSError, EOFError):
            hub.remove_reader(fd)
        else:
            halfway[fd] = (process, answer)

    return on_result_readable
