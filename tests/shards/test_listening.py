"""Changes are heard again after each way in which a subscription can end, also the one that nobody is told of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import redis.asyncio

from app.local.proxy import Proxy
from app.local.toxics import Timeout
from tasks.shards.listening import listen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.support.servers import Client

CHANNEL = "{cluster:bot}:changed"
WITHIN_S = 20.0


@pytest.fixture
def way(server: Client) -> Iterator[Proxy]:
    """A way to the server that can be broken."""
    port = int(server.connection_pool.connection_kwargs["port"])
    proxy = Proxy(("127.0.0.1", port)).start()
    yield proxy
    proxy.close()


@pytest.mark.parametrize("how", ["cut", "half-open"])
def test_a_lost_subscription_is_made_anew(server: Client, way: Proxy, how: str) -> None:
    """Both are followed by another subscription, which counts as news; what is published then is heard."""

    async def scene() -> None:
        heard = asyncio.Queue[None]()

        def connect() -> redis.asyncio.Redis:
            return redis.asyncio.Redis(port=way.port)

        listening = asyncio.create_task(listen(connect, CHANNEL, lambda: heard.put_nowait(None), 0.3))
        try:
            await heard.get()
            server.publish(CHANNEL, "bind")
            await heard.get()
            await asyncio.sleep(1.0)  # a quiet subscription that answers is kept
            assert heard.empty()
            if how == "cut":
                way.cut()
            else:
                with way.toxic(Timeout()):
                    server.publish(CHANNEL, "bind")
                    await asyncio.sleep(0.1)
            await heard.get()
            server.publish(CHANNEL, "bind")
            await heard.get()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    asyncio.run(within(scene))


async def within(scene: Callable[[], Awaitable[None]]) -> None:
    """Bounded."""
    await asyncio.wait_for(scene(), WITHIN_S)
