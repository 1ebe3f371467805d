"""`GET /gateway/bot`: the one request that a pod makes of Discord's REST interface, each half minute.

A call ends within `within_s`, whatever the other side does: each request has a deadline, failures are tried again with
a growing and random wait, and a wait that Discord asks for and that is longer than the call ends it at once. That
wait holds for later calls too: they do not ask before it is over. After a 401 nothing is asked any more by this client.

The token goes into one header of a request. It is in no message, no representation and no exception of this module:
aiohttp's own exceptions carry the request with its headers, so none leaves, not even as a context. Redirects are
not followed and no proxy of the environment is used: both would show the token to somebody else.

A look-up of a name cannot be broken off, and takes as long as the machine's resolver likes: half a minute where no
server of names answers. It runs in a daemon thread, so that neither a call nor the end of the process waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Self, cast

import aiohttp
from aiohttp.resolver import ThreadedResolver

from tasks.shards.gateway_bot import GatewayBot, Later, Never, Refused, judge
from throttle.errors import HeadroomError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

REQUEST_S, WITHIN_S = 5.0, 20.0
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 8.0
LARGEST_BODY = 65_536
USER_AGENT = "DiscordBot (https://example.invalid/headroom, 0.1)"
"""Discord refuses a client that does not say that it is a bot."""


class DiscordError(HeadroomError):
    """Discord gave no answer that could be used."""


class DiscordAway(DiscordError):
    """Discord cannot be used now; ask again in the next round."""


class TokenRefused(DiscordError):
    """The token is not valid. Nothing but another token helps: do not ask again."""


class Rest:
    """Asks Discord for one bot. For one event loop; use it as `async with`."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        request_s: float = REQUEST_S,
        within_s: float = WITHIN_S,
        first_wait_s: float = FIRST_WAIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is asked and nothing opened before the first call.

        Args:
            url: address of the interface, e.g. `https://discord.com/api/v10`.
            token: the bot's, without the word `Bot`.
            request_s: seconds that one request may take, name look-up and connection included.
            within_s: seconds that a call may take with all that it tries again.
            first_wait_s: seconds before the second try, at most; doubled before each further one.
            clock: monotonic seconds.
        """
        self._url = url.rstrip("/") + "/gateway/bot"
        self._token = token
        self._request_s, self._within_s, self._first_wait_s = request_s, within_s, first_wait_s
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._not_before_s = 0.0
        self._never = ""

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        await self.close()

    async def close(self) -> None:
        """Close the connection. A later call opens another."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def gateway_bot(self) -> GatewayBot:
        """What Discord recommends now. One request, more when it fails.

        Raises:
            DiscordAway: no usable answer in time.
            TokenRefused: Discord does not know the token; raised again by each later call, without a request.
        """
        if self._never:
            raise TokenRefused(self._never)
        until_s = self._clock() + self._within_s
        wait_s = self._first_wait_s
        if self._not_before_s >= until_s:
            raise DiscordAway(f"Discord asked for a wait of {self._not_before_s - self._clock():.0f} s more")
        while True:
            await asyncio.sleep(max(0.0, self._not_before_s - self._clock()))
            verdict = await self._ask(until_s)
            match verdict:
                case GatewayBot():
                    return verdict
                case Never(why):
                    self._never = f"Discord refuses the bot: {why}"
                    raise TokenRefused(self._never)
                case Refused(why):
                    raise DiscordAway(f"Discord cannot be used: {why}")
                case Later(why, asked_s):
                    pause_s = random.uniform(wait_s / 2, wait_s)
                    if asked_s is not None:
                        pause_s += asked_s
                        self._not_before_s = self._clock() + pause_s
                    wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            if self._clock() + pause_s >= until_s:
                raise DiscordAway(f"Discord cannot be used: {why}")
            await asyncio.sleep(pause_s)

    async def _ask(self, until_s: float) -> GatewayBot | Later | Never | Refused:
        """One request; never raises what aiohttp raises."""
        limit_s = min(self._request_s, max(0.1, until_s - self._clock()))
        try:
            async with asyncio.timeout(limit_s):
                return await self._request()
        except TimeoutError:
            return Later(f"no answer in {limit_s:.1f} s")
        except aiohttp.ClientConnectorError as error:
            number = error.os_error.errno
            return Later(f"no connection ({os.strerror(number) if number and number > 0 else 'no such host'})")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Later(f"no answer ({type(error).__name__})")

    async def _request(self) -> GatewayBot | Later | Never | Refused:
        if self._session is None:
            connector = aiohttp.TCPConnector(resolver=ThreadedResolver(cast("Any", Names())))
            self._session = aiohttp.ClientSession(
                connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
            )
        headers = {"Authorization": f"Bot {self._token}", "User-Agent": USER_AGENT}
        async with self._session.get(self._url, headers=headers, allow_redirects=False) as answer:
            body = await _read(answer.content)
            if body is None:
                return Later(f"it answered more than {LARGEST_BODY} bytes")
            return judge(answer.status, answer.headers.get("Retry-After"), body)


class Names:
    """The two look-ups of an event loop that aiohttp's resolver uses, each in a daemon thread."""

    async def getaddrinfo(self, *arguments: Any, **options: Any) -> Any:
        """See `socket`."""
        return await _apart(socket.getaddrinfo, *arguments, **options)

    async def getnameinfo(self, *arguments: Any) -> Any:
        """See `socket`."""
        return await _apart(socket.getnameinfo, *arguments)


async def _apart(look_up: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Await a call in a thread that nobody joins. One that is cancelled goes on unheard."""
    loop, answer = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def tell(found: Any, error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(found)
        else:
            answer.set_exception(error)

    def run() -> None:
        found: Any = None
        failure: Exception | None = None
        try:
            found = look_up(*arguments, **options)
        except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, found, failure)

    threading.Thread(target=run, name="headroom-names", daemon=True).start()
    return await answer


async def _read(content: aiohttp.StreamReader) -> bytes | None:
    """The whole body; None when it is too large to be meant."""
    body = b""
    async for part in content.iter_any():
        body += part
        if len(body) > LARGEST_BODY:
            return None
    return body
