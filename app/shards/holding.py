"""The step of a worker that holds shards: starts the driver with the worker, and hands everything over at its end.

It belongs to the worker, not to its consumer: connections outlive a lost broker. A worker that is asked to end begins
to hand over at once, while its tasks finish; at its end it waits for what is left, for a while.
"""
# pyright: basic

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from celery import bootsteps, signals

from app.settings import without_password
from app.shards import rights
from app.shards.broadcast import vote_rounds
from app.shards.connecting import Noting, credentials, make_connections
from app.shards.delivering import load_callback
from tasks.shards.driver import Driver
from tasks.shards.gateway.holder import Address
from tasks.shards.keys import Keys
from tasks.shards.kubernetes import FromKubernetes
from tasks.shards.liveness import ByHeartbeat
from tasks.shards.operations import Numbers, Operations
from tasks.shards.rest import Rest
from tasks.shards.voter import vote
from throttle.errors import ConfigurationError, RedisRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

    from app.settings import Settings
    from tasks.shards.liveness import Liveness
    from tasks.shards.vocabulary import Told

logger = logging.getLogger(__name__)

HAND_OVER_S = 12.0
HURRY_S = 2.0
"""At a cold shutdown, which may take three seconds."""


def make(app: Celery, settings: Settings, pod: str) -> Driver:
    """The driver of this pod, not started. Raises `ConfigurationError` for a callback that cannot be had."""
    keys = Keys(settings.discord_bot_id)
    numbers = Numbers(ttl_ms=round(settings.shard_ttl_s * 1000))
    operations = Operations(keys, numbers, f"{pod}#{os.urandom(4).hex()}", credentials(settings))
    address = Address(settings.discord_gateway_url)
    return Driver(
        settings.redis_url,
        operations,
        make_connections(app, settings, operations, address),
        limit=settings.shard_load_limit,
        votes=partial(_votes, settings, address),
        witness=_witness(settings),
    )


async def _votes(settings: Settings, address: Address, tell: Callable[[Told], None]) -> None:
    token = settings.discord_token
    if token is not None:
        async with Rest(settings.discord_api_url, token.get_secret_value()) as rest:
            secure = settings.discord_api_url.startswith("https:")
            await vote(vote_rounds(), Noting(rest, address, secure=secure), tell)


def _witness(settings: Settings) -> Callable[[], Liveness]:
    if settings.shard_liveness == "redis":
        return ByHeartbeat
    witness = FromKubernetes(settings.shard_pods)  # refuses here, at the start, where this is no pod
    return lambda: witness


class Shards(bootsteps.StartStopStep):
    """See the module."""

    label = "Shards"
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        """Nothing runs before `start`: a pool's children are made first."""
        self._app = worker.app
        self.driver: Driver | None = None
        super().__init__(worker, **options)

    def start(self, _worker: Any) -> None:
        """Begin to agree with the others."""
        settings: Settings = self._app.headroom_settings
        if settings.shard_connections == "none":
            logger.warning(
                "headroom: SHARD_CONNECTIONS=none: this worker holds no shards of bot %s", settings.discord_bot_id
            )
            return
        if settings.shard_queues and settings.shard_task not in self._app.tasks:
            logger.warning(
                "headroom: SHARD_TASK=%r: this worker has no such task; another one must take from %s",
                settings.shard_task,
                ", ".join(settings.shard_queues),
            )
        self.driver = make(self._app, settings, self._app.throttle.settings.pod)
        self.driver.on_fault = self._fell
        self.driver.start()
        self._app.headroom_shards = self.driver
        self._app.throttle.drain.listeners.append(self._begin_to_end)
        logger.info("headroom: shards of bot %s, connections %s", settings.discord_bot_id, settings.shard_connections)

    def _fell(self, why: str) -> None:
        """End the worker in order, as far as it has come up; a new one takes its place."""
        host = self._app.throttle.driver.host
        if host is not None:
            host.stop_worker(why)
        else:
            logger.critical("headroom: %s", why)

    def _begin_to_end(self) -> None:
        if self.driver is not None:
            self.driver.begin_to_drain()

    def stop(self, parent: Any) -> None:
        """Hand over what is left, for a while; then end."""
        del parent
        self._end(HAND_OVER_S)

    def _end(self, within_s: float) -> None:
        driver, self.driver = self.driver, None
        if driver is not None:
            if not driver.drain(within_s):
                logger.warning(
                    "headroom: shards were not handed over in %g s; others take them by their leases", within_s
                )
            driver.stop()

    def terminate(self, parent: Any) -> None:
        """As `stop`, in a hurry."""
        del parent
        self._end(HURRY_S)


def _may(app: Celery, settings: Settings, sender: Any, **_: Any) -> None:
    """Refuse to start, in one line, without what shards need.

    Rights in Redis, which the worker has reached by now; the callback; Kubernetes.
    """
    if sender.app is app:
        where = app.connection_for_write().as_uri()
        try:
            operations = sender.app.throttle.driver.operations
            rights.check(operations, Keys(settings.discord_bot_id), settings.shard_queues, where)
            if settings.shard_callback:
                load_callback(settings.shard_callback)
            _witness(settings)
        except (RedisRefused, ConfigurationError) as error:
            raise SystemExit(f"headroom: {error}") from None


def install(app: Celery, settings: Settings) -> None:
    """Add the step to an app's workers. Raises `ConfigurationError` for an address that shards cannot use."""
    if settings.shard_connections != "none" and not settings.redis_url.startswith(("redis://", "rediss://")):
        address = without_password(settings.redis_url)
        raise ConfigurationError(
            f"REDIS_URL={address!r}: with shards allowed is an address such as redis://host:6379/0"
        )
    if settings.shard_connections != "none":
        signals.worker_init.connect(partial(_may, app, settings), weak=False, dispatch_uid=("shards", id(app)))
    app.headroom_settings = settings  # pyright: ignore[reportAttributeAccessIssue]
    app.steps["worker"].add(Shards)  # pyright: ignore[reportOptionalSubscript]
