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

And when the connection is lost Celery drops what no process has *told* that it accepted, although it has it and runs
it: the message would go back, and be done twice. So what it has to tell is read first.

A shutdown finishes what is halfway as Celery does by itself: for that the generator is handed back to the hub.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import time
from typing import TYPE_CHECKING, Any

from celery.concurrency.asynpool import SCHED_STRATEGY_FAIR, gen_not_started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

ACCEPTANCE_S = 2.0
"""How long a lost connection waits for children to tell what they have accepted; they do in milliseconds."""


class GarbledAnswer(Exception):
    """What a process of the pool wrote is no answer."""


def load(source: Any) -> Any:
    """Unpickle an answer; raises `GarbledAnswer`."""
    try:
        return pickle.load(source)  # noqa: S301 - written by a child of this process
    except Exception as error:
        raise GarbledAnswer(repr(error)) from error


def keep_answers_whole(consumer: Any) -> None:
    """Have a consumer's prefork pool read its pipes as the module says. Before its hub runs; safe to repeat."""
    pool, flush = consumer.pool._pool, consumer.on_close
    if hasattr(pool._result_handler, "halfway"):
        return

    def on_lost() -> None:
        await_acceptance(pool, ACCEPTANCE_S, consumer.connection_errors)
        flush()

    consumer.on_close = on_lost
    replace_reader(pool)


def replace_reader(pool: Any) -> None:
    """The pool's own part of it."""
    handler = pool._result_handler
    handler.halfway = halfway = {}
    finish = handler._finish_partial_read

    def finish_partial_read(fd: int, process: Any) -> Any:
        proc, answer = halfway.pop(fd, (None, None))
        if proc is process and handler._hub is not None:
            handler._hub.readers[fd] = (answer, ())
        return finish(fd, process)

    def make_process_result(hub: Any) -> Callable[[int], None]:
        return _reader(hub, handler, halfway)

    track = pool._track_child_process

    def track_child_process(process: Any, hub: Any) -> None:
        if getattr(process, "_sentinel_poll", 0) is not None:  # None: it has ended, and the pool will notice
            track(process, hub)

    pool._track_child_process = track_child_process
    handler._finish_partial_read = finish_partial_read
    handler._make_process_result = make_process_result


def await_acceptance(pool: Any, timeout_s: float, connection_errors: tuple[type[Exception], ...]) -> None:
    """Read what the processes tell until each has accepted what was written to it, or begun to be, for a while at most.

    Only where a process is given the next task when it is done with one; else what waits in a pipe would be waited for.
    """
    if pool.sched_strategy != SCHED_STRATEGY_FAIR:
        return
    give_up_s = time.monotonic() + timeout_s
    while time.monotonic() < give_up_s and any(_is_on_its_way(job) for job in list(pool._cache.values())):
        for writer in list(pool._active_writers):
            if writer.__name__ == "_write_job" and not gen_not_started(writer):
                with contextlib.suppress(StopIteration, OSError):
                    next(writer)
        for fd in list(pool._fileno_to_outq):
            with contextlib.suppress(*connection_errors):
                pool._result_handler.handle_event(fd)
        time.sleep(0.002)


def _is_on_its_way(job: Any) -> bool:
    process = getattr(job, "_write_to", None)
    return process is not None and not job._accepted and process._is_alive()


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
