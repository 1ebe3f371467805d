"""One connection, from its HELLO to its end: what the client may send, when it must beat, and what it is sent.

    hello -> (IDENTIFY or RESUME) -> serving -> closed
               ^ op 9: back here, on the same socket

Everything happens in the gateway's loop. What is sent waits in `_outbox`; what was not sent when the socket ended is
in the session, and is replayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosed

from app.local.discord.wire import (
    ENDS_SESSION,
    LEAVES,
    Breach,
    Close,
    Dialect,
    Op,
    Packer,
    read,
    read_address,
    read_beat,
    read_identify,
    read_resume,
    write,
)

if TYPE_CHECKING:
    from typing import Any

    from websockets.asyncio.server import ServerConnection

    from app.local.discord.gateway import Gateway
    from app.local.discord.script import At, Door, Fault
    from app.local.discord.sessions import Session

logger = logging.getLogger(__name__)

ABNORMAL = 1006


class Client:
    """See the module."""

    def __init__(self, gateway: Gateway, socket_: ServerConnection, number: int, door: Door) -> None:
        """`number`: what the book calls it."""
        self.number, self.door = number, door
        self.dialect = Dialect(0, packed=False)
        self.session: Session | None = None
        self.mute = self.deaf = False
        self._gateway, self._socket = gateway, socket_
        self._terms = gateway.terms
        self._packer = Packer(self.dialect)
        self._outbox: deque[str] = deque()
        self._wake = asyncio.Event()
        self._shut = False
        self._asked = self._has_beaten = False
        self._sent_s: deque[float] = deque()
        self._beat_s = 0.0
        self._timers: list[asyncio.TimerHandle] = []
        self._closing: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Until its end; nothing is raised for what a client does."""
        writing = asyncio.create_task(self._write())
        try:
            self._begin()
            while True:
                self._take(await self._socket.recv())
        except Breach as breach:
            self.shut(breach.code, breach.why)
        except ConnectionClosed:
            self._note_end()
        finally:
            for timer in self._timers:
                timer.cancel()
            if self._closing is not None:
                await self._closing
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writing

    # ---------------------------------------------------------------- what it is sent

    def push(self, text: str) -> None:
        """Send it, after what waits."""
        if not self.mute and not self._shut:
            self._outbox.append(text)
            self._wake.set()

    async def _write(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._outbox:
                    await self._socket.send(self._packer.pack(self._outbox.popleft()))

    def _begin(self) -> None:
        self.dialect = read_address(self._socket.request.path if self._socket.request else "")
        self._packer = Packer(self.dialect)
        self._later(self._terms.unidentified_s, self._ask_who)
        if self.suffer("hello"):
            return
        self.note("hello")
        self.push(write(Op.HELLO, {"heartbeat_interval": round(self._terms.heartbeat_s * 1000), "_trace": []}))
        self._beat_s = self._gateway.now_s()
        self._watch_beats()

    # ---------------------------------------------------------------- what it sends

    def _take(self, message: str | bytes) -> None:
        if self._shut:
            return
        self._count()
        op, data = read(message)
        if op is Op.HEARTBEAT:
            self._beaten(read_beat(data))
        elif op is Op.IDENTIFY:
            self._must_be_new()
            self._gateway.identify(self, read_identify(data))
        elif op is Op.RESUME:
            self._must_be_new()
            self._gateway.resume(self, read_resume(data))
        elif self.session is None:
            raise Breach(Close.NOT_AUTHENTICATED, f"op {op} before IDENTIFY")

    def _must_be_new(self) -> None:
        if self.session is not None:
            raise Breach(Close.ALREADY_AUTHENTICATED, "a second IDENTIFY or RESUME")

    def _count(self) -> None:
        now_s = self._gateway.now_s()
        self._sent_s.append(now_s)
        while self._sent_s[0] <= now_s - self._terms.sends_window_s:
            self._sent_s.popleft()
        if len(self._sent_s) > self._terms.sends:
            raise Breach(Close.RATE_LIMITED, f"more than {self._terms.sends} in {self._terms.sends_window_s:g} s")

    def _beaten(self, sequence: int | None) -> None:
        self._beat_s = self._gateway.now_s()
        self._gateway.book.beats += 1
        if not self._has_beaten:
            self._has_beaten = True
            self.note("beat")
        if self._asked:
            self._asked = False
            self.note("answered")
        if self.session is not None and sequence is not None:
            if sequence > self.session.sequence:
                self.note("breach", why=f"a heartbeat of sequence {sequence}, of {self.session.sequence}")
            elif self._terms.forgets_beaten:
                self.session.forget(sequence)
        if not self.deaf:
            self.push(write(Op.ACK))

    def _watch_beats(self) -> None:
        allowed_s = self._terms.heartbeat_s * self._terms.beat_patience
        silent_s = self._gateway.now_s() - self._beat_s
        if silent_s >= allowed_s:
            self.shut(Close.SESSION_TIMED_OUT, f"no heartbeat in {silent_s:.1f} s")
        else:
            self._later(allowed_s - silent_s + 0.001, self._watch_beats)

    def _ask_who(self) -> None:
        if self.session is None:
            self.shut(Close.SESSION_TIMED_OUT, f"no IDENTIFY in {self._terms.unidentified_s:g} s")

    # ---------------------------------------------------------------- out of turn

    def suffer(self, at: At) -> bool:
        """Carry out what the script has for this moment. True: what would come now does not."""
        shard, total = (self.session.shard, self.session.total) if self.session else (None, None)
        return self.suffer_as(at, shard, total)

    def suffer_as(self, at: At, shard: int | None, total: int | None, session: Session | None = None) -> bool:
        """The same, for a connection whose session is not its own yet."""
        fault = self._gateway.script.take(at, shard, total, self.door)
        if fault is None:
            return False
        if fault.after_s:
            self._later(fault.after_s, lambda: self.act(fault, session))
        else:
            self.act(fault, session)
        return True

    def act(self, fault: Fault, session: Session | None = None) -> None:
        """Do what a fault says; `session`: the one that it is about, where the connection has none."""
        session = self.session or session
        match fault.do:
            case "close":
                self.shut(fault.code, "as the script says", session)
            case "reset":
                self.reset()
            case "silence":
                self.mute = fault.at == "ready"
            case "deaf":
                self.deaf = True
            case "reconnect":
                self.note("reconnect")
                self.push(write(Op.RECONNECT))
                self._later(self._terms.reconnect_grace_s, lambda: self.shut(Close.UNKNOWN_ERROR, "after op 7"))
            case "invalid":
                self._gateway.invalidate(self, session, resumable=fault.resumable)
            case "beat":
                self._asked = True
                self.note("asked")
                self.push(write(Op.HEARTBEAT))
            case "garble":
                self.push("{")
            case "status":
                raise ValueError("an HTTP status comes before the handshake")

    def shut(self, code: int, why: str, session: Session | None = None) -> None:
        """Close it, by the stand-in."""
        if self._shut:
            return
        self._shut = True
        self._outbox.clear()
        session = self.session or session
        self.note("shut", code=code, why=why)
        self._gateway.detach(self, session, f"closed with {code}" if code in ENDS_SESSION else "")
        self._closing = asyncio.create_task(self._socket.close(code, why))

    def reset(self) -> None:
        """End it by RST."""
        if not self._shut:
            self._shut = True
            self.note("shut", code=ABNORMAL, why="reset")
            self._gateway.detach(self, self.session, "")
        reset(self._socket)

    def _note_end(self) -> None:
        if self._shut:
            return
        self._shut = True
        received = self._socket.protocol.close_rcvd
        code = ABNORMAL if received is None else int(received.code)
        self.note("closed", code=code, why="" if received is None else received.reason)
        self._gateway.detach(self, self.session, f"its client closed with {code}" if code in LEAVES else "")

    # ---------------------------------------------------------------- the rest

    def note(self, kind: str, **more: Any) -> None:
        """Write into the book, with whose it is."""
        if self.session is not None:
            whose = self.session
            more = {"shard": whose.shard, "total": whose.total, "session": whose.name, **more}
            more.setdefault("sequence", whose.sequence)
        self._gateway.book.note(kind, self.number, **more)

    def _later(self, after_s: float, do: Any) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(after_s, do))


def reset(connection: ServerConnection) -> None:
    """End a connection by RST."""
    inner = connection.transport.get_extra_info("socket")
    if inner is not None:
        with contextlib.suppress(OSError):
            inner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.transport.abort()
