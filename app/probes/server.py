"""Serves the probes and the metrics over HTTP, from a thread of the operating system.

The loop may stand, and on gevent with it every greenlet: so the thread is started by what gevent left of `_thread`, and
what gevent put in place of sockets gets a hub of its own there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, cast

from app.settings import port_refusal
from throttle.errors import ConfigurationError
from throttle.worker import native

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
CLIENT_S = 5.0
"""How long a client may take to say what it wants."""
BACKLOG = 64


class Answers(Protocol):
    """What is served."""

    def look(self, now_s: float) -> None:
        """Called about once a second, and after each answer."""
        ...

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Status, content type and body for a path; any may be asked at once."""
        ...


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD of one path, and the connection is closed."""

    timeout = CLIENT_S
    server_version = "headroom"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer."""
        answers = cast("Server", self.server).answers
        status, content_type, body = answers.answer(self.path.partition("?")[0], self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - http.server's name for it

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name for it
        """Say nothing: each pod is asked some twenty times a minute."""


class Server(ThreadingHTTPServer):
    """Serves on a socket that listens already."""

    daemon_threads = True
    address_family = socket.AF_INET6

    def __init__(self, listening: socket.socket, answers: Answers) -> None:
        """Take the socket over."""
        super().__init__(("", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_address = listening.getsockname()
        self.server_name, self.server_port = "", self.server_address[1]
        self.answers = answers

    def service_actions(self) -> None:
        """Look at the loop."""
        self.answers.look(time.monotonic())

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as it is called
        """A client that went away is no error; ours are told."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            logger.error("a probe was not answered", exc_info=error)


def json_answer(status: int, body: dict[str, Any]) -> tuple[int, str, bytes]:
    """An answer in JSON."""
    return status, "application/json", json.dumps(body).encode() + b"\n"


def listen(port: int) -> socket.socket:
    """A socket that listens on a port, on all addresses of this machine, IPv6 and IPv4.

    Raises:
        ConfigurationError: the port is taken, or this process may not have it. One line, with the setting.
    """
    families = [(socket.AF_INET, False)]
    if socket.has_dualstack_ipv6():
        families.insert(0, (socket.AF_INET6, True))
    failure = OSError()
    for family, dual in families:
        try:
            return socket.create_server(("", port), family=family, backlog=BACKLOG, dualstack_ipv6=dual)
        except OSError as error:  # IPv6 may be switched off although the kernel knows it
            failure = error
    why = (os.strerror(failure.errno) if failure.errno else str(failure)).lower()
    raise ConfigurationError(port_refusal(port, why)) from None


def serve(listening: socket.socket, answers: Answers) -> None:
    """Serve in a thread of its own, for as long as the process lives. Children that are forked let go of the port."""
    descriptor = listening.detach()

    def run() -> None:
        # made here, because gevent's sockets belong to the hub of the thread that makes them
        server = Server(socket.socket(fileno=descriptor), answers)
        server.serve_forever(LOOK_EVERY_S)

    os.register_at_fork(after_in_child=lambda: _close(descriptor))
    native.start(run)


def _close(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        os.close(descriptor)
