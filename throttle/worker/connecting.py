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

from throttle.errors import RedisRefused, RedisTooOld, RedisUnreachable
from throttle.keys import Keys
from throttle.scripts import Operations
from throttle.worker.broker import answer_s, first_line, following

if TYPE_CHECKING:
    from throttle.settings import ThrottleSettings

logger = logging.getLogger(__name__)

PAUSE_S = 0.5
FOLLOWED = (redis.Connection, redis.SSLConnection)
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


def reach(app: Any, settings: ThrottleSettings) -> Operations:
    """Connect with patience: `startup_s` seconds for a Redis that starts later than its workers; 0: one try.

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


def check_version(server: dict[str, Any], where: str) -> None:
    """Refuse a server that is too old; raises `RedisTooOld`. One that does not tell its version is believed."""
    valkey = "valkey_version" in server
    name, oldest = ("Valkey", OLDEST_VALKEY) if valkey else ("Redis", OLDEST_REDIS)
    version = str(server.get("valkey_version" if valkey else "redis_version", ""))
    number = re.match(r"(\d+)\.(\d+)", version)
    if number and (int(number[1]), int(number[2])) < oldest:
        message = f"{name} {version} at {where} is too old: allowed are Redis 6.2 or newer and Valkey 7.2 or newer"
        raise RedisTooOld(message)
