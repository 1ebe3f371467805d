# pyright: basic
"""How a worker reaches its fleet: the broker's address and options, a client of its own, and checks before any work.

The client is made by kombu from the app's broker settings, so that TLS, Sentinel, sockets, users and credential
providers work as they do for the broker. It differs in one thing: it waits for an answer no longer than a third of the
TTL (at most five seconds), because a pod that hangs on a silent Redis would be taken for dead.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any

import redis
from kombu.connection import Connection
from kombu.exceptions import KombuError
from kombu.transport import redis as kombu_redis
from redis.exceptions import BusyLoadingError, NoPermissionError

from throttle import rights
from throttle.errors import RedisRefused, RedisTooOld, RedisUnreachable
from throttle.keys import Keys
from throttle.scripts import Operations
from throttle.worker.broker import answer_s, first_line, following

if TYPE_CHECKING:
    from throttle.settings import ThrottleSettings

logger = logging.getLogger(__name__)

PAUSE_S = 0.5
FOLLOWED = (redis.Connection, redis.SSLConnection)
PRIORITY = "\x06\x163"
"""What kombu puts behind the name of a queue for another priority than 0."""
OLDEST_REDIS = (6, 2)
OLDEST_VALKEY = (7, 2)


def connect(app: Any, settings: ThrottleSettings) -> Operations:
    """Open a connection to the broker's Redis and return the fleet's operations over it.

    Raises what kombu and redis-py raise when it does not answer, or refuses. Two round trips.
    """
    limit_s = answer_s(settings)
    place = address(
        app,
        settings,
        transport_options={
            "socket_timeout": limit_s,
            "socket_connect_timeout": limit_s,
            "health_check_interval": 0,
            "max_connections": 100,
        },
    )
    transport = place.transport
    channel = transport.create_channel(transport)
    if not isinstance(channel, kombu_redis.Channel):
        message = (
            f"{place.as_uri()} is no Redis: allowed are redis://, rediss://, redis+socket:// and sentinel:// (other "
            'brokers: gate="requeue", with the fleet at REDIS_URL)'
        )
        raise RedisRefused(message)
    if channel.pool.connection_class in FOLLOWED:
        channel.pool.connection_class = following(channel.pool.connection_class)
    client = redis.Redis(connection_pool=channel.pool)
    client.ping()
    channel.client.connection_pool.disconnect()  # kombu's own, for consuming: nobody will
    return Operations(client, Keys(settings.fleet, channel.global_keyprefix), settings.rule())


def address(app: Any, settings: ThrottleSettings, **options: Any) -> Any:
    """The fleet's Redis, for kombu: the broker, or `REDIS_URL` for an app on another broker. Nothing is sent."""
    broker = app.connection_for_write(**options)
    if app.throttle.gate == "requeue" and broker.transport.driver_type != "redis":
        return Connection(settings.redis_url, **options)
    return broker


def reach(app: Any, settings: ThrottleSettings, options: dict[str, Any] | None = None) -> Operations:
    """Connect with patience: `startup_s` seconds for a Redis that starts later than its workers; 0: one try.

    `options` are those of a worker's command line: what a worker needs of Redis is looked at too.

    Raises:
        RedisRefused: the server answered but does not let us in.
        RedisTooOld: it lacks what the scripts need.
        RedisUnreachable: nobody answered in time.
    """
    where = address(app, settings).as_uri()
    give_up_s = time.monotonic() + settings.startup_s
    while True:
        try:
            operations = connect(app, settings)
            check_version(operations.client.info("server"), where)
            if options is not None:
                check_rights(app, operations, options)
                warn_of_eviction(operations.client.info("memory"), where)
        except (redis.AuthenticationError, NoPermissionError) as error:
            message = (
                f"Redis at {where} refuses us: {first_line(error)}; allowed is a user that may run scripts on all keys"
            )
            raise RedisRefused(message) from None
        except BusyLoadingError as error:
            failure: Exception = error
        except redis.ResponseError as error:
            message = f"Redis at {where} refuses us: {first_line(error)}"
            raise RedisRefused(message) from None
        except (redis.RedisError, KombuError, OSError) as error:
            failure = error
        else:
            return operations
        if time.monotonic() + PAUSE_S > give_up_s:
            patience = f" within {settings.startup_s:g} s (THROTTLE_STARTUP_S)" if settings.startup_s else ""
            message = f"no Redis at {where}{patience}: {first_line(failure)}"
            raise RedisUnreachable(message) from None
        time.sleep(PAUSE_S)


def check_rights(app: Any, operations: Operations, options: dict[str, Any]) -> None:
    """Refuse a user of Redis who lacks what the worker will need; raises `RedisRefused` with what is missing."""
    keys: list[str] = []
    channels: dict[str, list[str]] = {}
    place = address(app, app.throttle.settings)
    if place.transport.driver_type == app.connection_for_write().transport.driver_type:
        prefix, control = operations.keys.prefix, f"{app.control.mailbox.namespace}.pidbox"
        queues = sorted({*app.amqp.queues.consume_from, *app.throttle.critical_queues})
        kombus = ["_kombu.binding.celery", "unacked_mutex", f"x.{control}"]
        keys = [prefix + name for name in (*queues, *(name + PRIORITY for name in queues), *kombus)]
        channels = _channels(app, operations, options)
    if lacks := rights.missing(operations, keys=keys, **channels):
        user = operations.client.connection_pool.connection_kwargs.get("username") or "default"
        message = (
            f"Redis at {place.as_uri()} refuses user {user!r} what this worker needs; missing: {' '.join(lacks)} (all "
            "that is needed: docs/how-to/secure-redis.md)"
        )
        raise RedisRefused(message)


def _channels(app: Any, operations: Operations, options: dict[str, Any]) -> dict[str, list[str]]:
    """What Celery's remote control, gossip and events subscribe to and publish on, as kombu names it."""
    before = app.conf.broker_transport_options.get("fanout_prefix", True)
    if not isinstance(before, str):
        before = "/{db}." if before else ""
    before = operations.keys.prefix + before.format(db=operations.client.connection_pool.connection_kwargs.get("db", 0))
    control = [f"{before}{app.control.mailbox.namespace}.pidbox"] if app.conf.worker_enable_remote_control else []
    events = f"{before}{app.conf.event_exchange}/"
    gossip = [] if options.get("without_gossip") else [f"{events}worker.*"]
    silent = options.get("without_heartbeat") and not (options.get("task_events") or app.conf.worker_send_task_events)
    return {"subscribes": control + gossip, "publishes": control if silent else [*control, f"{events}task.multi"]}


def warn_of_eviction(memory: dict[str, Any], where: str) -> None:
    """Say so when the server may throw keys away to make room: queues, and what the fleet holds, are among them."""
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and memory.get("maxmemory"):
        logger.warning(
            "headroom: Redis at %s evicts keys when it is full (maxmemory-policy %s), messages among them; allowed for "
            "a broker is noeviction",
            where,
            policy,
        )


def check_version(server: dict[str, Any], where: str) -> None:
    """Refuse a server that is too old; raises `RedisTooOld`. One that does not tell its version is believed."""
    valkey = "valkey_version" in server
    name, oldest = ("Valkey", OLDEST_VALKEY) if valkey else ("Redis", OLDEST_REDIS)
    version = str(server.get("valkey_version" if valkey else "redis_version", ""))
    number = re.match(r"(\d+)\.(\d+)", version)
    if number and (int(number[1]), int(number[2])) < oldest:
        message = f"{name} {version} at {where} is too old: allowed are Redis 6.2 or newer and Valkey 7.2 or newer"
        raise RedisTooOld(message)
