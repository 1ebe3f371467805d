"""One web socket to the gateway: payloads in, payloads out, and a close code that is really sent. Nothing is decided.

Everything has an end: opening, sending and closing are cut after their time, whatever the other side does. Nothing is
kept but what the library holds: a few frames that were received and not yet read (reading stops at sixteen), and what
the other side does not take (sending waits at 32 KiB).
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import logging
import ssl
from typing import TYPE_CHECKING, Any

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from tasks.shards.gateway.payloads import decode, encode, inflater

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from tasks.shards.gateway.payloads import Compression, Payload

MOST_FRAME_BYTES = 16 * 1024 * 1024
SILENT = logging.Logger("websockets of shards", logging.CRITICAL + 1)  # noqa: LOG001
"""Outside of the tree of loggers, so that no configuration makes it write what is sent: the token is in it."""


TLS_READ_BYTES = 4 * 1024
"""Of what TLS gives in one read. Most events are shorter; the longest take some more reads."""


class Unreachable(Exception):
    """No socket could be opened."""


class Gone(Exception):
    """The socket is closed."""

    def __init__(self, code: int) -> None:
        """`code`: the one the other side sent, 0 for none."""
        super().__init__(f"closed with {code}")
        self.code = code


class Wire:
    """An open socket; made by `open_wire`."""

    def __init__(self, socket: ClientConnection, compression: Compression, close_s: float) -> None:
        """Takes the socket over."""
        self._socket, self._inflater, self._close_s = socket, inflater(compression), close_s

    async def read(self) -> Payload:
        """The next payload. Raises `Gone`, `Garbled`."""
        while True:
            try:
                frame = await self._socket.recv()
            except ConnectionClosed as error:
                raise Gone(error.rcvd.code if error.rcvd else 0) from None
            raw = frame if isinstance(frame, str) else self._inflater.feed(frame)
            if raw is not None:
                return decode(raw)

    async def send(self, op: int, data: Any, within_s: float) -> None:
        """Send a payload. Raises `Gone`, `ValueError` when it is too long, `TimeoutError` when nobody takes it."""
        text = encode(op, data)
        try:
            async with asyncio.timeout(within_s):
                await self._socket.send(text)
        except ConnectionClosed as error:
            raise Gone(error.rcvd.code if error.rcvd else 0) from None

    async def close(self, code: int) -> None:
        """Close with this code, unless the other side has closed; the socket is gone when this returns or raises."""
        try:
            async with asyncio.timeout(self._close_s):
                await self._socket.close(code)
        except TimeoutError:
            pass
        finally:
            self._socket.transport.abort()
            await self._socket.wait_closed()


def frugal_tls(authority: str | None = None) -> ssl.SSLContext:
    """The context for all connections of a process. It checks whom it talks to, by the system's authorities.

    asyncio gives each connection a buffer of 256 KiB for these reads, which is most of what a shard takes (a record of
    TLS has 16 KiB at most). It has no option for that, so the size is set for all TLS connections of this process.

    Args:
        authority: path of a certificate authority's certificate, in place of the system's.
    """
    asyncio.sslproto.SSLProtocol.max_size = TLS_READ_BYTES
    return ssl.create_default_context(cafile=authority)


async def open_wire(
    url: str, compression: Compression, tls: ssl.SSLContext | None, *, connect_s: float, close_s: float
) -> Wire:
    """Connect, within `connect_s` seconds. Raises `Unreachable`."""
    options: dict[str, Any] = {"ssl": tls} if url.startswith("wss:") and tls is not None else {}
    try:
        socket = await connect(
            url,
            open_timeout=connect_s,
            close_timeout=close_s,
            ping_interval=None,  # the gateway has beats of its own
            compression=None,  # ... and a compression
            max_size=MOST_FRAME_BYTES,
            proxy=None,
            logger=SILENT,
            **options,
        )
    except (OSError, TimeoutError, WebSocketException, ValueError) as error:
        raise Unreachable(str(error) or type(error).__name__) from None
    return Wire(socket, compression, close_s)
