"""The two addresses of a gateway: the main one, and the one that a READY gives for a RESUME; each can be out of order.

========  ==========================================================================
state     what a client meets
========  ==========================================================================
open      the gateway
refuses   nobody listens: the connection is refused
hangs     the connection is accepted, and nothing comes, not even HTTP
resets    RST in place of the handshake
========  ==========================================================================
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

from websockets.asyncio.server import serve

from app.local.discord.client import reset
from app.local.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from websockets.asyncio.server import Server, ServerConnection
    from websockets.http11 import Request, Response

    from app.local.discord.script import Door as Name
    from app.local.discord.script import Script

DoorState = Literal["open", "refuses", "hangs", "resets"]

BACKLOG = 1024
CLOSE_S = 1.0
"""For a client's part of a closing handshake."""

quiet = logging.getLogger(f"{__name__}.websockets")
quiet.setLevel(logging.CRITICAL)


class Door:
    """One of them."""

    def __init__(
        self, name: Name, serve_: Callable[[ServerConnection], Awaitable[None]], script: Script, port: int | None
    ) -> None:
        """`port` on 127.0.0.1; None takes a free one. Nothing listens before `listen`."""
        self.name: Name = name
        self.port = port or free_port()
        self.state: DoorState = "open"
        self._serve, self._script = serve_, script
        self._server: Server | None = None
        self._ended: list[Server] = []
        self._closing = asyncio.Event()

    @property
    def url(self) -> str:
        """As READY and `GET /gateway/bot` give it."""
        return f"ws://127.0.0.1:{self.port}"

    async def listen(self) -> None:
        """Begin. OSError: the port is taken."""
        self._closing.clear()
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            self.port,
            process_request=self._meet,
            compression=None,
            ping_interval=None,
            open_timeout=None,
            close_timeout=CLOSE_S,
            backlog=BACKLOG,
            server_header=None,
            logger=quiet,
        )

    async def set(self, state: DoorState) -> None:
        """Change it; connections that are through stay."""
        self.state = state
        if state == "refuses" and self._server is not None:
            self._server.close(close_connections=False)
            self._ended.append(self._server)
            self._server = None
        elif state != "refuses" and self._server is None:
            await self.listen()

    async def end(self) -> None:
        """Drop every connection."""
        self._closing.set()
        servers = [*self._ended, *([self._server] if self._server is not None else [])]
        self._server = None
        for server in servers:
            server.close(close_connections=False)
            for connection in list(server.all_connections):
                connection.transport.abort()
        for server in servers:
            await server.wait_closed()

    async def _meet(self, connection: ServerConnection, request: Request) -> Response | None:
        del request
        if self.state == "open":
            fault = self._script.take("connect", None, None, self.name)
            does, code = (fault.do, fault.code) if fault else ("", 0)
        else:
            does, code = {"hangs": "silence", "resets": "reset"}[self.state], 0
        if does == "status":
            return connection.respond(HTTPStatus(code), "as the script says\n")
        if does == "reset":
            reset(connection)
        if does in ("reset", "silence"):
            await self._closing.wait()
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "over\n")
        return None
