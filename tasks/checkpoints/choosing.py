"""Which store a setting means: `redis`, the fleet's own, or the addresses of an etcd cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tasks.checkpoints.redis_store import RedisStore
from throttle.errors import ConfigurationError
from throttle.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.checkpoints.protocol import CheckpointStore
    from throttle.scripts import Operations

ETCD = re.compile(r"^(etcds?)://([^\s/?#@]+)/?$")
PORT = 2379


def addresses(setting: str) -> tuple[bool, list[tuple[str, int]]]:
    """Whether to speak TLS, and hosts with ports, of an address such as `etcd://a:2379,b:2379`.

    Raises:
        ConfigurationError: it is none.
    """
    found = ETCD.match(setting)
    members: list[tuple[str, int]] = []
    for member in found[2].split(",") if found else ():
        parts = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::(\d{1,5}))?", member)
        port = int(parts[2] or PORT) if parts else 0
        if parts is None or not 0 < port < 65536:  # noqa: PLR2004 - ports
            members.clear()
            break
        members.append((parts[1].strip("[]"), port))
    if not members:
        message = (
            f"{setting!r} is no store of checkpoints: allowed are redis and etcd://host:2379,other:2379 (etcds://)"
        )
        raise ConfigurationError(message)
    return bool(found and found[1] == "etcds"), members


def make_store(
    setting: str, fleet_operations: Callable[[], Operations], *, fleet: str, ttl_s: float, ca: str | None = None
) -> CheckpointStore:
    """The store that the setting names. With etcd nothing is sent; `fleet_operations` is asked for Redis alone.

    Raises:
        ConfigurationError: it names none, or the package for etcd is not installed.
    """
    if setting == "redis":
        operations = fleet_operations()
        return RedisStore(operations.client, operations.keys, ttl_s)
    tls, members = addresses(setting)
    try:
        from tasks.checkpoints.etcd_store import EtcdStore  # noqa: PLC0415 - only where it is asked for
    except ImportError as error:
        message = f"checkpoints in etcd need the package requests: pip install requests ({error})"
        raise ConfigurationError(message) from None
    return EtcdStore(members, Keys(fleet), ttl_s, tls=tls, ca=ca)
