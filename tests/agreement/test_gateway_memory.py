"""What an idle shard costs: a process with 200 of them, with and without TLS."""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import TYPE_CHECKING

import pytest

from app.local.discord.bot import Bot
from app.local.discord.gateway import Gateway
from app.local.discord.terms import Terms
from tests.shards.listening import TOKEN
from tests.support.tls import make_certificates

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tls import Certificates

SHARDS = 200
MOST_KIB = 100


async def tls_before(port: int, made: Certificates) -> tuple[asyncio.Server, str]:
    """A server that speaks TLS and passes on to `port`, and its address."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.certificate("server"), made.key("server"))

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        ways = (pass_on(reader, inner_writer), pass_on(inner_reader, writer))
        await asyncio.gather(*ways, return_exceptions=True)
        for each in (writer, inner_writer):
            each.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    return server, f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_an_idle_shard_takes_less_than_100_kib_and_no_thread(tmp_path: Path, *, tls: bool) -> None:
    async def run() -> list[float]:
        bot = Bot(TOKEN, shards=SHARDS, concurrency=SHARDS)
        async with Gateway(bot, guilds=SHARDS, terms=Terms(identify_every_s=0.0)) as gateway:
            words, server = [gateway.url, str(SHARDS)], None
            if tls:
                made = make_certificates(tmp_path)
                server, url = await tls_before(gateway.main.port, made)
                words = [url, str(SHARDS), made.authority]
            idle = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.agreement.idle", *words, stdout=asyncio.subprocess.PIPE
            )
            told, _ = await idle.communicate()
            if server is not None:
                server.close()
                await server.wait_closed()
            return [float(word) for word in told.split()]

    kib, threads, lost = asyncio.run(run())
    assert (threads, lost) == (1, 0)
    assert 10 < kib < MOST_KIB
