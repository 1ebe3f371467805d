"""Discord's REST interface as far as a pod asks it: `GET /gateway/bot`, in a thread, on the loopback address.

It refuses what Discord refuses: a wrong path or method (404, 405), a client that does not say what it is (403), a
token that is not the bot's (401), and more requests than it allows in a window (429). A request that comes before the
wait of a 429 is over is counted in `impatient`: a client that keeps to the rules never makes one.

What is put into `script` is answered first, one for each request.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple, Self

from aiohttp import web

from app.local.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from app.local.discord.bot import Bot

PATH = "/api/v10"
START_S = 10.0


class Scripted(NamedTuple):
    """One answer out of turn."""

    status: int = 200
    body: str | bytes | None = None
    """None: what the bot's state gives."""
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    after_s: float = 0.0
    """The answer comes so late."""
    reset: bool = False
    """The connection is closed in place of an answer."""


class RestStandIn:
    """One server for one bot; use it in a `with` block, or `start` and `stop` it."""

    def __init__(
        self,
        bot: Bot,
        *,
        gateway_url: str = "wss://gateway.invalid",
        port: int | None = None,
        limit: int = 50,
        window_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing listens before `start`.

        Args:
            bot: what it answers about.
            gateway_url: the `url` of its answers.
            port: on 127.0.0.1; None takes a free one.
            limit: requests that are answered in a window; those above get 429.
            window_s: its length in seconds.
            clock: monotonic seconds.
        """
        self.bot, self.gateway_url = bot, gateway_url
        self.port = port or free_port()
        self.script: deque[Scripted] = deque()
        self.statuses: Counter[int] = Counter()
        """How often each status was answered."""
        self.impatient = 0
        self.limit, self.window_s = limit, window_s
        self._clock = clock
        self._window: deque[float] = deque()
        self._closed_until_s = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """As DISCORD_API_URL wants it."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    @property
    def requests(self) -> int:
        """How many came, answered in whatever way."""
        return self.statuses.total()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Listen; returns when it does. OSError: the port is taken."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="discord-rest", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(START_S)

    def stop(self) -> None:
        """Close every connection and end the thread."""
        if self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S)
        self._loop.close()
        self._thread = None

    async def _listen(self) -> None:
        served = web.Application()
        served.router.add_get(f"{PATH}/gateway/bot", self._gateway_bot, allow_head=False)
        self._runner = web.AppRunner(served, access_log=None, handler_cancellation=True, shutdown_timeout=0.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def _gateway_bot(self, request: web.Request) -> web.StreamResponse:
        refused = self._refusal(request)
        if refused is None and self.script:
            scripted = self.script.popleft()
            await asyncio.sleep(scripted.after_s)
            if scripted.reset:
                self.statuses[0] += 1
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()
            answer = self._scripted(scripted)
        else:
            answer = refused or _json(200, self.bot.gateway_bot(self.gateway_url))
        self.statuses[answer.status] += 1
        return answer

    def _scripted(self, scripted: Scripted) -> web.Response:
        body = scripted.body
        if body is None:
            body = json.dumps(self.bot.gateway_bot(self.gateway_url))
        if scripted.status == web.HTTPTooManyRequests.status_code and "Retry-After" in scripted.headers:
            self._closed_until_s = self._clock() + float(scripted.headers["Retry-After"])
        raw = body.encode() if isinstance(body, str) else body
        return web.Response(status=scripted.status, body=raw, headers=scripted.headers, content_type="application/json")

    def _refusal(self, request: web.Request) -> web.Response | None:
        now_s = self._clock()
        if now_s < self._closed_until_s:
            self.impatient += 1
            return self._too_many(self._closed_until_s - now_s)
        while self._window and self._window[0] <= now_s - self.window_s:
            self._window.popleft()
        if len(self._window) >= self.limit:
            self._closed_until_s = self._window[0] + self.window_s
            return self._too_many(self._closed_until_s - now_s)
        self._window.append(now_s)
        if not request.headers.get("User-Agent", "").startswith("DiscordBot ("):
            return _json(403, {"message": "say who you are", "code": 40333})
        if not self.bot.knows(request.headers.get("Authorization")):
            return _json(401, {"message": "401: Unauthorized", "code": 0})
        return None

    def _too_many(self, wait_s: float) -> web.Response:
        # The header is in whole seconds, rounded up; the body is exact.
        wait_s = max(0.001, wait_s)
        body = {"message": "You are being rate limited.", "retry_after": wait_s, "global": False}
        return _json(429, body, {"Retry-After": str(int(-(-wait_s // 1)))})


def _json(status: int, body: object, headers: dict[str, str] | None = None) -> web.Response:
    """As Discord: the type without a character set."""
    return web.Response(status=status, body=json.dumps(body).encode(), headers=headers, content_type="application/json")
