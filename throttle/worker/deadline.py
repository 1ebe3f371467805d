# pyright: basic
"""A task is published within a time that the app sets, or the caller has one clear error.

By themselves Celery, kombu and redis-py limit each step, if at all, and repeat it: a connection whose other end is gone
costs the caller half a minute with our time limits and for ever without. So `send_task` carries a deadline that all
steps under it share, in its own thread: the wait for a connection of the pool, connecting, and each answer. A question
whether an idle connection still lives may take a quarter of what is left, so that there is time for a new one.

What is behind the deadline was perhaps published: the answer is what was missed. A resolver that does not answer is not
in our hands: only the time between its answers counts.

A result back end on Redis is no part of it any more: Celery subscribes to a task's result when it publishes the task,
here it does when somebody waits for the result. Nothing is lost by that, because to wait begins with a look at what is
there. A producer can send while the back end is away, and none listens to results that nobody wants.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from celery.backends.redis import RedisBackend
from kombu.exceptions import OperationalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PING_SHARE = 0.25


class _Here(threading.local):
    """The deadline of this thread (greenlet), on the monotonic clock."""

    until_s: float | None = None


_here = _Here()


class Expired(OperationalError):
    """The deadline has passed. None of the errors that kombu and redis-py repeat a step for."""


def left_s() -> float | None:
    """Seconds that are left to this thread; None when it has no deadline. Raises `Expired`."""
    if _here.until_s is None:
        return None
    left = _here.until_s - time.monotonic()
    if left <= 0:
        raise Expired
    return left


@contextlib.contextmanager
def deadline(limit_s: float, where: Callable[[], str]) -> Iterator[None]:
    """Give the steps in this block so long. Raises `OperationalError` that says `where`, then or for another failure.

    Within another deadline it changes nothing.
    """
    if _here.until_s is not None:
        yield
        return
    _here.until_s = time.monotonic() + limit_s
    try:
        yield
    except Expired as error:
        message = f"not published: no answer of {where()} within {limit_s:g} s (PUBLISH_TIMEOUT)"
        raise OperationalError(message) from error
    except OperationalError as error:
        message = f"not published: {where()}: {error}"
        raise OperationalError(message) from error
    finally:
        _here.until_s = None


class Punctual:
    """Mixed into a connection of redis-py: no step takes longer than the thread's deadline leaves."""

    _share = 1.0

    def _connect(self) -> Any:
        left, ours = left_s(), self.__dict__
        if left is None:
            return super()._connect()  # pyright: ignore[reportAttributeAccessIssue]
        kept = {name: ours[name] for name in ("socket_timeout", "socket_connect_timeout") if name in ours}
        ours.update({name: min(limit or left, left) for name, limit in kept.items()})
        try:
            return super()._connect()  # pyright: ignore[reportAttributeAccessIssue]
        finally:
            ours.update(kept)

    def _send_ping(self) -> None:
        self._share = PING_SHARE
        try:
            super()._send_ping()  # pyright: ignore[reportAttributeAccessIssue]
        finally:
            self._share = 1.0

    def send_packed_command(self, *args: Any, **options: Any) -> Any:
        """Send, within the deadline."""
        if _here.until_s is None:
            return super().send_packed_command(*args, **options)  # pyright: ignore[reportAttributeAccessIssue]
        with self._punctual():
            return super().send_packed_command(*args, **options)  # pyright: ignore[reportAttributeAccessIssue]

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Read, within the deadline."""
        if _here.until_s is None:
            return super().read_response(*args, **options)  # pyright: ignore[reportAttributeAccessIssue]
        with self._punctual():
            return super().read_response(*args, **options)  # pyright: ignore[reportAttributeAccessIssue]

    @contextlib.contextmanager
    def _punctual(self) -> Iterator[None]:
        left, connection = left_s(), self
        sock, limit_s = getattr(connection, "_sock", None), getattr(connection, "socket_timeout", None)
        if left is None or sock is None:
            yield
            return
        sock.settimeout(min(limit_s or left, left * self._share))
        try:
            yield
        finally:
            if (now := getattr(connection, "_sock", None)) is not None:
                now.settimeout(limit_s)


def install(app: Any, limit_s: float) -> None:
    """Give each publication of a task by this app a deadline."""
    send, make_backend = app.send_task, app._get_backend

    def quiet(backend: Any) -> Any:
        if isinstance(backend, RedisBackend):
            backend.on_task_call = lambda *_args, **_options: None
        return backend

    def send_task(*args: Any, **options: Any) -> Any:
        with deadline(limit_s, lambda: app.connection_for_write().as_uri()):
            return send(*args, **options)

    quiet(app._backend)
    app.send_task, app._get_backend = send_task, lambda: quiet(make_backend())
