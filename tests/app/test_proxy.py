"""The proxy: what each toxic does to a connection between a plain client and an echo server."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from typing import TYPE_CHECKING

import pytest

from app.local.proxy import Proxy
from app.local.toxics import Bandwidth, Hold, Latency, LimitData, ResetPeer, Slicer, SlowClose, Timeout
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Echo(socketserver.BaseRequestHandler):
    """Answers what it is sent, with its server's mark before it; `bye` ends the connection."""

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := self.request.recv(65536):
                if data == b"bye":
                    return
                self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    """An echo server on a free port."""

    daemon_threads = True
    block_on_close = False

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.server_address[1])


@pytest.fixture
def echo() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: Server) -> Iterator[Proxy]:
    with Proxy(echo.address) as made:
        yield made


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with connect(proxy) as made:
        assert ask(made, b"first") == b"first"
        yield made


def connect(proxy: Proxy) -> socket.socket:
    """A client with a time limit on every answer."""
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5.0)


def ask(client: socket.socket, data: bytes) -> bytes:
    """Send, and read as much as was sent."""
    client.sendall(data)
    got = b""
    while len(got) < len(data):
        more = client.recv(65536)
        if not more:
            break
        got += more
    return got


def silent(client: socket.socket, data: bytes, for_s: float = 0.2) -> bool:
    """Whether nothing is answered for so long, on a connection that stays open."""
    client.settimeout(for_s)
    try:
        ask(client, data)
    except TimeoutError:
        return True
    finally:
        client.settimeout(5.0)
    return False


def test_without_a_toxic_it_carries_everything(client: socket.socket) -> None:
    data = bytes(range(256)) * 4096
    assert ask(client, data) == data


def test_latency_delays_and_does_not_add_up(proxy: Proxy, client: socket.socket) -> None:
    proxy.add(Latency(0.1, 0.02), "downstream")
    began_s = time.monotonic()
    for number in range(10):  # ten chunks, each on its way before the first has arrived
        client.sendall(b"%d" % number)
        time.sleep(0.005)
    got = b""
    while len(got) < 10:
        got += client.recv(100)
    took_s = time.monotonic() - began_s
    assert got == b"0123456789"
    assert 0.08 < took_s < 0.6


def test_bandwidth(proxy: Proxy, client: socket.socket) -> None:
    proxy.add(Bandwidth(100_000), "upstream")
    began_s = time.monotonic()
    assert len(ask(client, b"x" * 20_000)) == 20_000
    assert time.monotonic() - began_s > 0.15


def test_timeout_makes_a_connection_half_open_for_good_and_spares_new_ones(proxy: Proxy, client: socket.socket) -> None:
    with proxy.toxic(Timeout()):
        assert silent(client, b"lost")
        with connect(proxy) as other:
            assert silent(other, b"lost too")
    assert silent(client, b"still lost")
    with connect(proxy) as other:
        assert ask(other, b"new") == b"new"


def test_timeout_can_end_the_connection(proxy: Proxy, client: socket.socket) -> None:
    proxy.add(Timeout(after_s=0.01), "upstream")
    with pytest.raises(ConnectionError):
        ask(client, b"lost")


def test_reset_peer(proxy: Proxy, client: socket.socket) -> None:
    with proxy.toxic(ResetPeer()), pytest.raises(ConnectionResetError):
        ask(client, b"lost")
    wait_until(lambda: proxy.connections == 0)


def test_slow_close(proxy: Proxy, client: socket.socket) -> None:
    proxy.add(SlowClose(0.2))
    began_s = time.monotonic()
    assert ask(client, b"bye") == b""
    assert time.monotonic() - began_s > 0.15


def test_limit_data(proxy: Proxy, client: socket.socket) -> None:
    proxy.add(LimitData(8), "downstream")  # five bytes were carried before
    with contextlib.suppress(ConnectionResetError):
        assert ask(client, b"second") == b"sec"
    wait_until(lambda: proxy.connections == 0)


def test_slicer(proxy: Proxy, client: socket.socket) -> None:
    proxy.add(Slicer(3, 1, pause_s=0.01), "downstream")
    client.sendall(b"abcdefghijkl")
    pieces: list[bytes] = []
    while sum(map(len, pieces)) < 12:
        pieces.append(client.recv(100))
    assert b"".join(pieces) == b"abcdefghijkl"
    assert len(pieces) > 2
    assert max(map(len, pieces)) <= 4


def test_hold_keeps_everything_until_it_is_over(proxy: Proxy, client: socket.socket) -> None:
    with proxy.toxic(Hold()):
        assert silent(client, b"later")
    assert client.recv(100) == b"later"


def test_a_held_connection_can_be_cut(proxy: Proxy, client: socket.socket) -> None:
    proxy.add(Hold())
    client.sendall(b"lost")
    assert proxy.cut() == 1
    with pytest.raises(ConnectionResetError):
        client.recv(100)


def test_refuse_and_accept_on_the_same_port(proxy: Proxy, client: socket.socket) -> None:
    port = proxy.port
    proxy.refuse()
    with pytest.raises(ConnectionResetError):
        client.recv(100)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.accept()
    assert proxy.port == port
    with connect(proxy) as other:
        assert ask(other, b"back") == b"back"


def test_new_connections_go_where_it_points(proxy: Proxy, client: socket.socket, echo: Server) -> None:
    with Server(("127.0.0.1", 0), Echo) as unheard:  # it accepts, and nobody serves
        proxy.point_to(unheard.address)
        assert ask(client, b"old") == b"old"
        with connect(proxy) as other:
            assert silent(other, b"new")
        proxy.point_to(echo.address)
        with connect(proxy) as other:
            assert ask(other, b"back") == b"back"


def test_a_server_that_is_not_there_is_a_reset(proxy: Proxy, echo: Server) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        proxy.point_to(("127.0.0.1", nobody.getsockname()[1]))
        with pytest.raises(ConnectionResetError), connect(proxy) as client:
            ask(client, b"lost")
    assert echo


def test_removing_and_clearing(proxy: Proxy, client: socket.socket) -> None:
    proxy.add(Hold())
    proxy.add(Latency(60.0))
    proxy.remove(Latency(60.0))
    proxy.remove(Latency(1.0))
    assert proxy.toxics("upstream") == (Hold(),)
    proxy.clear()
    assert ask(client, b"free") == b"free"
