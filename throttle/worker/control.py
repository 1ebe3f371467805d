"""The control address of a worker: `POST /drain` and `GET /drain`, on the loopback interface.

It commands, so it asks for the token of the file that `throttle.control` describes. It has a thread of the operating
system to itself, and answers while a task holds the loop of gevent or solo. It reads what the drain stands at and notes
what is wished; what follows is the drain's (`drain`).

    POST /drain {"timeout": 30}   drain, with a deadline in 30 s (0: none; left out: THROTTLE_DRAIN_TIMEOUT)
    GET  /drain                   how it stands, as POST answers too

A request that cannot be read changes nothing: 400 with one line. One connection at a time, each for two seconds at
most, however slowly it speaks.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import math
import os
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from throttle import control
from throttle.errors import ConfigurationError
from throttle.worker import native

if TYPE_CHECKING:
    from collections.abc import Callable

    from throttle.settings import ThrottleSettings

logger = logging.getLogger(__name__)

PATIENCE_S, LINGER_S = 2.0, 0.5
PAUSE_S = 0.1
LARGEST = 8192
"""Bytes of a request."""
LONGEST_S = 86400
BAD_REQUEST = 400
REASONS = {200: "OK", BAD_REQUEST: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}


class Drains(Protocol):
    """What is commanded here."""

    def ask(self, cause: str, timeout_s: float | None) -> None:
        """Begin, or bring the deadline forward."""
        ...

    def report(self) -> dict[str, Any]:
        """How it stands."""
        ...


class Answer(NamedTuple):
    """A status, and a line or an object."""

    status: int
    content: str | dict[str, Any]

    def encode(self) -> bytes:
        """As it goes over the wire."""
        of_json = not isinstance(self.content, str)
        body = (json.dumps(self.content) if of_json else f"{self.content}\n").encode()
        kind = "application/json" if of_json else "text/plain; charset=utf-8"
        head = f"HTTP/1.1 {self.status} {REASONS[self.status]}\r\nContent-Type: {kind}\r\n"
        return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


class BadRequestError(Exception):
    """One line about a request that cannot be read."""


class Server:
    """Listens until the process ends."""

    def __init__(self, settings: ThrottleSettings, drain: Drains) -> None:
        """Listen. Raises `ConfigurationError` when the port that was asked for is not free."""
        self._settings, self._drain = settings, drain
        self._token = secrets.token_urlsafe(24)
        self._listener = native.original("socket", "socket")()
        try:
            self._listener.setsockopt(1, 2, 1)  # SOL_SOCKET, SO_REUSEADDR
            self._listener.bind((control.HOST, settings.control_port))
        except OSError as error:
            self._listener.close()
            message = f"THROTTLE_CONTROL_PORT={settings.control_port}: {error.strerror}; allowed is a port that is free"
            raise ConfigurationError(message) from None
        self._listener.listen(8)
        # a child of the pool would keep the port for as long as it outlives its parent
        os.register_at_fork(after_in_child=self._listener.close)
        self.port: int = self._listener.getsockname()[1]
        native.start(self._serve)

    def publish(self) -> None:
        """Write the file, once this process is the pod: one that is refused its name leaves that of the living one."""
        try:
            control.publish(self._settings, control.Control(self.port, self._token, os.getpid()))
        except OSError as error:
            logger.warning("headroom: no file tells where this worker is reached (%s): no command drains it", error)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # no descriptor is free, or the connection went away: the next one may be luckier
                native.original("time", "sleep")(PAUSE_S)
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(PATIENCE_S)
                answer = self._answer(connection)
                connection.sendall(answer.encode())
                if answer.status == BAD_REQUEST:
                    read_away(connection)

    def _answer(self, connection: Any) -> Answer:
        try:
            method, path, headers, body = read_request(connection)
            told = headers.get("authorization", "")
            if not hmac.compare_digest(told.encode(), f"Bearer {self._token}".encode()):
                return Answer(401, f"a token is needed: it stands in {control.file_of(self._settings)}")
            if path != "/drain":
                return Answer(404, "there is /drain, and nothing else")
            if method not in ("GET", "POST"):
                return Answer(405, "allowed is GET or POST")
            if method == "POST":
                self._drain.ask("command", timeout_of(body))
            return Answer(200, self._drain.report())
        except BadRequestError as error:
            return Answer(BAD_REQUEST, str(error))
        except OSError:
            raise
        except Exception as error:
            logger.exception("headroom: a request to the control address failed")
            return Answer(BAD_REQUEST, f"it failed: {type(error).__name__}")


def read_away(connection: Any) -> None:
    """What was sent and is not read would take the answer along: a close is a reset then. For a moment at most."""
    give_up_s = time.monotonic() + LINGER_S
    connection.shutdown(socket.SHUT_WR)
    while (left_s := give_up_s - time.monotonic()) > 0:
        connection.settimeout(left_s)
        if not connection.recv(LARGEST):
            return


def read_request(connection: Any) -> tuple[str, str, dict[str, str], bytes]:
    """Method, path, headers (names in small letters) and body of one request."""
    give_up_s = time.monotonic() + PATIENCE_S
    head, body = _until(connection, b"", lambda read: b"\r\n\r\n" in read, give_up_s).split(b"\r\n\r\n", 1)
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1"):  # noqa: PLR2004 - method, path, version
        message = "allowed is a request of HTTP/1.1"
        raise BadRequestError(message)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal() and int(length) <= LARGEST):
        message = f"Content-Length {length[:20]!r}: allowed is a whole number up to {LARGEST}"
        raise BadRequestError(message)
    body = _until(connection, body, lambda read: len(read) >= int(length), give_up_s)
    return words[0], words[1], headers, body[: int(length)]


def _until(connection: Any, read: bytes, is_whole: Callable[[bytes], bool], give_up_s: float) -> bytes:
    while not is_whole(read):
        left_s = give_up_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        more = connection.recv(LARGEST)
        if not more or len(read) + len(more) > 2 * LARGEST:
            message = "the request ends too early, or is too large"
            raise BadRequestError(message)
        read += more
    return read


def timeout_of(body: bytes) -> float | None:
    """The deadline that a body asks for, in seconds from now; None when it leaves that open."""
    try:
        wish = json.loads(body or b"{}")
    except ValueError:
        wish = None
    if not isinstance(wish, dict) or set(cast("dict[str, Any]", wish)) - {"timeout"}:
        message = 'allowed is a JSON object such as {"timeout": 30}, or nothing'
        raise BadRequestError(message)
    found = cast("dict[str, Any]", wish).get("timeout")
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        found = -1
    if not 0 <= found <= LONGEST_S:
        message = f"timeout: allowed is a number of seconds from 0 (no deadline) to {LONGEST_S}"
        raise BadRequestError(message)
    return float(found)
