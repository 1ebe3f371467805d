"""The pods as the Kubernetes API tells of them: a poll each two seconds, from inside a pod.

Address, name space, token and certificate are where every pod with a service account finds them. The token is read anew
for each request, for the kubelet replaces it; it is in no message. Each request asks for the newest state (it names no
resourceVersion), as the rule in `liveness` needs, and for the pods of one label alone.

An API server that is away, refuses or answers nonsense is no news: the last reading grows old and is dropped, and the
heartbeats decide alone, as without it. That is said once when it begins and once when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import aiohttp

from tasks.shards.liveness import PodSeen, Reading, UnreadableError, read_pods
from throttle.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ADDRESS = "https://kubernetes.default.svc"
"""The API server's name in every cluster."""
EVERY_S, REQUEST_S, STALE_S = 2.0, 1.5, 5.0
OK = 200


class Numbers(NamedTuple):
    """In seconds; for tests."""

    every_s: float = EVERY_S
    request_s: float = REQUEST_S
    stale_s: float = STALE_S


class FromKubernetes:
    """A witness that polls the API. For one event loop; `start` it, and `close` it in the end."""

    def __init__(
        self,
        labels: str,
        *,
        address: str = ADDRESS,
        account: Path = ACCOUNT,
        numbers: Numbers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read where this pod is.

        Args:
            labels: of the pods, e.g. `app=worker,tier=bot`.
            address: of the API server.
            account: folder with `token`, `namespace` and, for https, `ca.crt`.
            numbers: other intervals than the usual ones.
            clock: monotonic seconds, the same that tells when members were first seen.

        Raises:
            ConfigurationError: this is no pod, or one without a service account's token.
        """
        try:
            namespace = (account / "namespace").read_text(encoding="utf-8").strip()
            (account / "token").read_bytes()
            secure = address.startswith("https:")
            self._tls = ssl.create_default_context(cafile=account / "ca.crt") if secure else True
        except (OSError, ssl.SSLError) as error:
            problem = error.strerror or type(error).__name__
            raise ConfigurationError(
                f"SHARD_LIVENESS='kubernetes': no service account in {account} ({problem}); allowed in a pod with "
                "automountServiceAccountToken: true"
            ) from None
        self._url = f"{address}/api/v1/namespaces/{namespace}/pods"
        self._query = {"labelSelector": labels}
        self._account = account
        self._numbers = numbers or Numbers()
        self._clock = clock
        self._reading: Reading | None = None
        self._blind = False
        self._session: aiohttp.ClientSession | None = None
        self._task: asyncio.Task[None] | None = None

    async def read(self) -> Reading | None:
        """The newest reading; None when it is older than is good. The first call begins to poll."""
        if self._task is None:
            self._task = asyncio.create_task(self._poll())
        reading = self._reading
        return reading if reading and self._clock() - reading.asked_s < self._numbers.stale_s else None

    async def close(self) -> None:
        """End the poll and let the connection go."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _poll(self) -> None:
        while True:
            asked_s = self._clock()
            pods, trouble = await self._ask()
            if pods is not None:
                self._reading = Reading(asked_s, pods)
            if self._blind != bool(trouble):
                self._blind = bool(trouble)
                if trouble:
                    logger.warning(
                        "shards: Kubernetes does not tell of the pods (%s); heartbeats decide alone", trouble
                    )
                else:
                    logger.info("shards: Kubernetes tells of the pods again")
            await asyncio.sleep(self._numbers.every_s * random.uniform(0.8, 1.2))

    async def _ask(self) -> tuple[dict[str, PodSeen] | None, str]:
        """The pods, or why they are not known. What aiohttp raises carries the token, so it is not passed on."""
        try:
            async with asyncio.timeout(self._numbers.request_s):
                return await self._request()
        except TimeoutError:
            return None, "no answer in time"
        except UnreadableError as error:
            return None, str(error)
        except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
            return None, type(error).__name__

    async def _request(self) -> tuple[dict[str, PodSeen] | None, str]:
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar())
        token = (self._account / "token").read_text(encoding="utf-8").strip()
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        async with self._session.get(
            self._url, params=self._query, headers=headers, allow_redirects=False, ssl=self._tls
        ) as answer:
            if answer.status != OK:
                return None, f"it answered {answer.status}"
            return read_pods(json.loads(await answer.read())), ""
