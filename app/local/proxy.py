"""A TCP proxy that makes a connection as bad as real networks are, on purpose and in a controlled way.

It stands between a client and its server on this machine. What it does to the bytes is a *toxic* (`app.local.toxics`)
that can be added and removed while connections are open:

=============  ========================================================================================================
`Latency`      each chunk arrives later, with jitter; the order stands, and throughput is not reduced
`Bandwidth`    so many bytes a second
`Timeout`      what is sent is swallowed; the connection stays open (for ever, or for some time and then closes)
`ResetPeer`    the connection ends by RST, at the next byte or after some time
`SlowClose`    an end reaches the other side later
`LimitData`    after so many bytes the connection ends
`Slicer`       data arrives in small pieces
`Hold`         nothing passes until it is removed, then everything: a partition that heals (toxiproxy has none)
=============  ========================================================================================================

A connection from which `Timeout` has swallowed anything is a half-open one for good: it stays a black hole after the
toxic is removed, as a connection does whose peer has gone. New connections are as good as before.

Beside the toxics: `refuse` and `accept` (nobody listens), `cut` (RST to all that are open) and `point_to` (new
connections go to another server, as behind a service whose address moves).

The proxy runs in a thread with an event loop of its own. Everything public may be called from any thread; what it
changes holds for the next chunk of each open connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from app.local.toxics import Bandwidth, Hold, Latency, LimitData, ResetPeer, Slicer, SlowClose, Timeout, Toxic

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterator
    from typing import Any

Direction = Literal["upstream", "downstream"]
"""upstream: from the client to the server. downstream: back."""
Address: TypeAlias = "tuple[str, int]"

CHUNK = 64 * 1024
BACKLOG = 1024
"""Chunks under way in one direction of a connection."""
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """One listener on 127.0.0.1 in front of one server. A context manager that ends it with all its connections."""

    def __init__(self, target: Address, *, seed: int = 0) -> None:
        """Prepare; `start` listens. `seed` decides the jitter and the slices."""
        self.port = 0
        """Where it listens; 0 before `start`."""
        self.chance = random.Random(seed)
        self.changed = asyncio.Event()
        self._target = target
        self._toxics: dict[Direction, tuple[Toxic, ...]] = {"upstream": (), "downstream": ()}
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def start(self) -> Self:
        """Listen on a free port, which it keeps; returns itself."""
        self._thread.start()
        self.accept()
        return self

    def close(self) -> None:
        """End the listener, all connections and the thread. Safe to repeat."""
        if self._loop.is_closed():
            return
        if self._thread.is_alive():
            self._run(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # -- what it does to the bytes

    def add(self, toxic: Toxic, direction: Direction | None = None) -> None:
        """Apply a toxic from now on, in one direction or (None) in both."""
        for each in _directions(direction):
            self._toxics[each] = (*self._toxics[each], toxic)
        self._tell()

    def remove(self, toxic: Toxic) -> None:
        """Apply this toxic no more; one that is not there is no error."""
        for each, toxics in self._toxics.items():
            self._toxics[each] = tuple(other for other in toxics if other != toxic)
        self._tell()

    def clear(self) -> None:
        """Apply no toxic any more."""
        self._toxics = {"upstream": (), "downstream": ()}
        self._tell()

    @contextlib.contextmanager
    def toxic(self, toxic: Toxic, direction: Direction | None = None) -> Generator[None]:
        """Apply a toxic during a block."""
        self.add(toxic, direction)
        try:
            yield
        finally:
            self.remove(toxic)

    def toxics(self, direction: Direction) -> tuple[Toxic, ...]:
        """What is applied now."""
        return self._toxics[direction]

    # -- what it does to the connections

    def refuse(self) -> None:
        """Listen no more and cut what is open: the next client is refused."""
        self._run(self._refuse())

    def accept(self) -> None:
        """Listen (again), on the same port."""
        self._run(self._accept())

    def cut(self) -> int:
        """End all open connections by RST on both sides; returns how many there were."""
        return self._run(self._cut())

    def point_to(self, target: Address) -> None:
        """Lead new connections to another server. Open ones stay where they are, as behind a service that moves."""
        self._target = target

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._links)

    # -- inside the loop

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10.0)

    def _tell(self) -> None:
        """Wake what waits for a change."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._change)

    def _change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def _accept(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = int(self._server.sockets[0].getsockname()[1])

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut()

    async def _end(self) -> None:
        """Refuse, and wait for the connections that were being accepted right then: they end as well."""
        await self._refuse()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(tasks, timeout=0.05)
            await self._cut()
        await asyncio.sleep(0)  # what is aborted closes at the loop's next turn

    async def _cut(self) -> int:
        links = list(self._links)
        for link in links:
            link.reset()
        await asyncio.gather(*(link.over.wait() for link in links))
        return len(links)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            await link.run(self._target)
            await link.closed()
        finally:
            self._links.discard(link)
            link.over.set()


class _Link:
    """One connection of a client and the one to the server behind it."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = (reader, writer)
        self._writers = [writer]
        self._pumps: list[asyncio.Task[None]] = []
        self._swallowed = False
        self.over = asyncio.Event()

    async def run(self, target: Address) -> None:
        """Carry bytes both ways until one side ends."""
        try:
            reader, writer = await asyncio.open_connection(*target)
        except OSError:
            self.reset()
            return
        self._writers.append(writer)
        self._pumps += [
            asyncio.create_task(self._pump(self._client[0], writer, "upstream")),
            asyncio.create_task(self._pump(reader, self._client[1], "downstream")),
        ]
        await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for each in self._writers:
            each.close()

    async def closed(self) -> None:
        """Wait until both sides are: what is still to be sent is, unless `reset` comes first."""
        await asyncio.gather(*(each.wait_closed() for each in self._writers), return_exceptions=True)

    def reset(self) -> None:
        """End both sides by RST."""
        for writer in self._writers:
            with contextlib.suppress(OSError):  # this side has ended already
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            writer.transport.abort()
        for pump in self._pumps:
            pump.cancel()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction) -> None:
        """One direction. A second task reads, so that a chunk that is late does not make the next one later still."""
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(BACKLOG)
        reading = asyncio.create_task(self._read(reader, chunks))
        carried = 0
        try:
            while True:
                read_s, chunk = await chunks.get()
                if not chunk:
                    break
                carried += len(chunk)
                rest = await self._delayed(chunk, read_s, carried, way)
                for piece in self._pieces(rest, way):
                    writer.write(piece)
                    await writer.drain()
                    await self._pause(way)
                if len(rest) < len(chunk) and not self._swallowed:
                    raise ConnectionResetError
            for toxic in self._proxy.toxics(way):
                if isinstance(toxic, SlowClose):
                    await asyncio.sleep(toxic.delay_s)
        except ConnectionError:
            self.reset()
        finally:
            reading.cancel()

    @staticmethod
    async def _read(reader: asyncio.StreamReader, chunks: asyncio.Queue[tuple[float, bytes]]) -> None:
        chunk = b"."
        while chunk:
            try:
                chunk = await reader.read(CHUNK)
            except ConnectionError:
                chunk = b""
            await chunks.put((asyncio.get_running_loop().time(), chunk))

    async def _delayed(self, chunk: bytes, read_s: float, carried: int, way: Direction) -> bytes:
        """What of a chunk goes on, once it may."""
        proxy = self._proxy
        while Hold() in proxy.toxics(way):
            await proxy.changed.wait()
        for toxic in proxy.toxics(way):
            match toxic:
                case Latency(delay_s, jitter_s):
                    due_s = read_s + delay_s + proxy.chance.uniform(-jitter_s, jitter_s)
                    await asyncio.sleep(due_s - asyncio.get_running_loop().time())
                case Bandwidth(bytes_per_s):
                    await asyncio.sleep(len(chunk) / bytes_per_s)
                case Timeout(None):
                    self._swallowed = True
                case Timeout(float(after_s)) | ResetPeer(after_s):
                    await asyncio.sleep(after_s)
                    raise ConnectionResetError
                case LimitData(count):
                    chunk = chunk[: max(0, len(chunk) - max(0, carried - count))]
                case _:
                    pass
        return b"" if self._swallowed else chunk

    def _pieces(self, chunk: bytes, way: Direction) -> Iterator[bytes]:
        slicer = next((toxic for toxic in self._proxy.toxics(way) if isinstance(toxic, Slicer)), None)
        while chunk:
            size = len(chunk)
            if slicer is not None:
                size = max(1, slicer.average + self._proxy.chance.randint(-slicer.variation, slicer.variation))
            yield chunk[:size]
            chunk = chunk[size:]

    async def _pause(self, way: Direction) -> None:
        for toxic in self._proxy.toxics(way):
            if isinstance(toxic, Slicer):
                await asyncio.sleep(toxic.pause_s)


def _directions(direction: Direction | None) -> tuple[Direction, ...]:
    return ("upstream", "downstream") if direction is None else (direction,)
