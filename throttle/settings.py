"""Settings of the library, read from the environment in this one place.

A setting is an argument of `throttle.install` or `Fleet` first, then the environment variable, then the default. A bad
value stops the start with one line that names the variable, the value and what is allowed; a variable that begins like
ours and is none, most likely a slip of the pen, gets one line in the log.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import socket
from typing import Any, Literal, cast

from pydantic import AliasChoices, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from throttle.errors import ConfigurationError
from throttle.scripts import Rule

logger = logging.getLogger(__name__)

OnRedisError = Literal["allow", "deny"]

PREFIX = "THROTTLE_"
SERVICE = re.compile(r"^THROTTLE_(\w+_)?(SERVICE_(HOST|PORT)|PORT)(_|$)")
"""What Kubernetes puts into the environment of each pod beside a Service whose name begins with throttle."""


def _named(variable: str, argument: str) -> AliasChoices:
    return AliasChoices(argument, variable)


class ThrottleSettings(BaseSettings):
    """What one fleet agrees on. All pods of a fleet should have the same values."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    redis_url: str = Field("redis://localhost:6379/0", validation_alias=_named("REDIS_URL", "redis_url"))
    """Address of the Redis that holds the fleet. Celery apps use their broker's instead."""

    fleet: str = Field("default", pattern=r"^[A-Za-z0-9_.:-]+$", validation_alias=_named("THROTTLE_FLEET", "fleet"))
    """Name of the fleet: all pods that share one ratio and one set of queues."""

    pod: str = Field("", validation_alias=_named("POD_NAME", "pod"))
    """Name of this pod, unique in the fleet (Downward API); the host name when empty."""

    ratio: float = Field(0.8, gt=0, le=1, validation_alias=_named("THROTTLE_RATIO", "ratio"))
    """Share of the living pods that may be busy with normal work. The rest is the reserve of the critical lane."""

    ttl_s: float = Field(30.0, ge=3, le=86400, validation_alias=_named("THROTTLE_TTL", "ttl_s"))
    """Seconds of silence after which a pod counts as dead. Pods beat every third of it. Shorter finds dead pods
    sooner and costs more beats; a pod that is frozen for longer loses its work to others."""

    max_deliveries: int = Field(
        5, ge=1, le=1000000, validation_alias=_named("THROTTLE_MAX_DELIVERIES", "max_deliveries")
    )
    """How often a message is delivered to pods that die over it, before it goes to the dead letters. During
    the last two of these deliveries its pod takes nothing more."""

    journal: int = Field(0, ge=0, le=100000000, validation_alias=_named("THROTTLE_JOURNAL", "journal"))
    """Entries that the log of operations keeps; 0 writes none. For tests, the demo and for looking into a fault: each
    operation becomes one more write."""

    startup_s: float = Field(30.0, ge=0, le=3600, validation_alias=_named("THROTTLE_STARTUP_S", "startup_s"))
    """Seconds that a start waits for Redis before it gives up."""

    publish_timeout_s: float = Field(
        5.0, ge=0.1, le=3600, validation_alias=_named("PUBLISH_TIMEOUT", "publish_timeout_s")
    )
    """Seconds after which a task that could not be published is an error to its producer, however Redis fails. A
    producer that waits less tries a slow Redis less often, and knows less often whether its task was published."""

    beat_lease_s: float = Field(5.0, ge=1, le=300, validation_alias=_named("THROTTLE_BEAT_LEASE", "beat_lease_s"))
    """Seconds for which the `celery beat` that leads the schedule does so without asking again. One that is killed is
    replaced after this; one that stands still for longer is replaced too."""

    drain_timeout_s: float = Field(
        0.0, ge=0, le=86400, validation_alias=_named("THROTTLE_DRAIN_TIMEOUT", "drain_timeout_s")
    )
    """Seconds that running tasks are given when a worker drains (SIGTERM, SIGINT, `throttle drain`). Then
    `DrainDeadline` is raised in them. 0: they are waited for as long as they take. Keep it below Kubernetes' grace
    period, which ends in SIGKILL."""

    drain_grace_s: float = Field(5.0, ge=0, le=3600, validation_alias=_named("THROTTLE_DRAIN_GRACE", "drain_grace_s"))
    """Seconds that a task has after `DrainDeadline` to save what it has. What still runs then is left over: a worker
    that is to end gives its message back, and ends without it."""

    control_port: int = Field(0, ge=0, le=65535, validation_alias=_named("THROTTLE_CONTROL_PORT", "control_port"))
    """Port of a worker's control address, on the loopback interface alone; 0: any free one. It is found by a file."""

    on_redis_error: OnRedisError = Field("allow", validation_alias=_named("THROTTLE_ON_REDIS_ERROR", "on_redis_error"))
    """What `Fleet.try_acquire` answers while Redis is away: let the work run uncounted (allow), or not (deny)."""

    trim_mb: int = Field(64, ge=0, le=1048576, validation_alias=_named("THROTTLE_TRIM_MB", "trim_mb"))
    """Mebibytes by which a task may leave its process larger before the allocator's free pages are given back to the
    system (`malloc_trim`); 0 never does."""

    @field_validator("pod")
    @classmethod
    def _pod_name(cls, value: str) -> str:
        name = value or socket.gethostname()
        if "#" in name or not name.isprintable() or " " in name:
            message = "a name without '#', spaces and control characters"
            raise ValueError(message)
        return name

    @property
    def ttl_ms(self) -> int:
        """The TTL in whole milliseconds, as the scripts take it."""
        return round(self.ttl_s * 1000)

    @property
    def beat_s(self) -> float:
        """Seconds between two beats: a third of the TTL, so at most one a second."""
        return self.ttl_s / 3

    def rule(self) -> Rule:
        """The part of the settings that every operation carries."""
        return Rule(self.ratio, self.ttl_ms, self.max_deliveries, self.journal)


def load_settings(**arguments: Any) -> ThrottleSettings:
    """Settings from arguments (None: not given), then the environment, then the defaults.

    Raises `ConfigurationError`, one line, when a value is not allowed.
    """
    _warn_of_unknown_variables()
    given = {name: value for name, value in arguments.items() if value is not None}
    unknown = sorted(set(given) - set(ThrottleSettings.model_fields))
    if unknown:
        message = f"unknown setting {unknown[0]!r}; allowed: {', '.join(ThrottleSettings.model_fields)}"
        raise ConfigurationError(message)
    try:
        # pydantic-settings fills every field that is not given from the environment
        return ThrottleSettings(**given)
    except ValidationError as error:
        raise ConfigurationError(_one_line(error, given)) from None


def variables() -> tuple[str, ...]:
    """Names of the environment variables that are read."""
    fields = ThrottleSettings.model_fields.values()
    return tuple(str(cast("AliasChoices", info.validation_alias).choices[1]) for info in fields)


_warned: set[str] = set()


def _warn_of_unknown_variables() -> None:
    """Log each variable that looks like a setting and is none, once in this process, with the one that it may mean."""
    known = [name for name in variables() if name.startswith(PREFIX)]
    for name in sorted(os.environ):
        # upper-cased, because the names of variables are read without regard to case
        if not name.upper().startswith(PREFIX) or name.upper() in known or SERVICE.match(name) or name in _warned:
            continue
        _warned.add(name)
        near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0)[0]
        logger.warning(
            "headroom: there is no setting %s, the variable is not used; the nearest setting is %s", name, near
        )


def _one_line(error: ValidationError, given: dict[str, Any]) -> str:
    """The first fault in words: which name the user wrote, the value, what is allowed."""
    first = error.errors()[0]
    location = str(first["loc"][0])
    field, variable = next(
        (name, aliases[1])
        for name, info in ThrottleSettings.model_fields.items()
        for aliases in [cast("AliasChoices", info.validation_alias).choices]
        if location in aliases or location == name
    )
    name = field if field in given else variable
    return f"{name}={first['input']!r}: {allowed(field)}"


def allowed(field: str) -> str:
    """What a field of `ThrottleSettings` may be, in words."""
    return {
        "redis_url": "allowed is an address such as redis://host:6379/0",
        "fleet": "allowed are letters, digits and _ . : -",
        "pod": "allowed is a name without '#', spaces and control characters",
        "ratio": "allowed is a number above 0 and up to 1",
        "ttl_s": "allowed is a number of seconds from 3 to 86400",
        "max_deliveries": "allowed is a whole number from 1 to 1000000",
        "journal": "allowed is a whole number from 0 (off) to 100000000",
        "startup_s": "allowed is a number of seconds from 0 to 3600",
        "publish_timeout_s": "allowed is a number of seconds from 0.1 to 3600",
        "beat_lease_s": "allowed is a number of seconds from 1 to 300",
        "drain_timeout_s": "allowed is a number of seconds from 0 (no deadline) to 86400",
        "drain_grace_s": "allowed is a number of seconds from 0 to 3600",
        "control_port": "allowed is a whole number from 0 (any free port) to 65535",
        "on_redis_error": "allowed is allow or deny",
        "trim_mb": "allowed is a whole number of MiB from 0 (never) to 1048576",
    }[field]
