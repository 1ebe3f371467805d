"""Settings of the application, read from the environment in this one place.

The brake's own (``THROTTLE_*``, ``POD_NAME``) are in ``throttle/settings.py``. A bad value stops the
start with one line that names the variable, the value and what is allowed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path  # noqa: TC003 - pydantic reads the annotation at run time
from typing import Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import SettingsConfigDict

from app import discord_settings
from app.discord_settings import DiscordSettings
from throttle.errors import ConfigurationError
from throttle.policy import LONGEST_S, MOST_RETRIES, Backoff, Limit, Retries, TimeLimits, parse_limits, parse_retries

NAME = r"^[A-Za-z0-9_.:-]+$"
ERRORS = r"^(\s*[A-Za-z_][\w.]*\s*(,|$))*$"
ADDRESS = r"^(redis|rediss|sentinel|redis\+socket)://\S+$"


class Settings(DiscordSettings):
    """What the application needs to know of its surroundings. Each field is read from its alias."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    redis_url: str = Field(default="redis://localhost:6379/0", pattern=ADDRESS, validation_alias="REDIS_URL")
    """Address of the broker, which also holds the fleet."""

    task_queue: str = Field(default="task_queue", pattern=NAME, validation_alias="TASK_QUEUE")
    """The queue of normal work: what is sent without naming a queue goes here."""

    critical_queue: str = Field(default="critical", pattern=NAME, validation_alias="CRITICAL_QUEUE")
    """The queue of critical work: it may use the pods that are kept free."""

    result_backend: str = Field(default="", validation_alias="RESULT_BACKEND")
    """Where results go: empty is the broker's Redis, ``disabled://`` keeps none."""

    result_expires_s: int = Field(default=86400, ge=60, le=31_536_000, validation_alias="RESULT_EXPIRES")
    """Seconds that a result is kept. Longer costs memory in Redis for every task."""

    jobs_folder: Path | None = Field(default=None, validation_alias="JOBS_FOLDER")
    """The one folder whose files the jobs may read and write. Without it they refuse every file."""

    pulse_every_s: float = Field(default=10.0, ge=0, le=86400, validation_alias="PULSE_EVERY")
    """Seconds between two reports of the fleet by beat's task; 0 schedules none."""

    soft_limit_s: float = Field(default=0, ge=0, le=LONGEST_S, validation_alias="TASK_SOFT_TIME_LIMIT")
    """Seconds after which a task is told to end (`SoftTimeLimitExceeded` is raised in it); 0 never tells it."""

    hard_limit_s: float = Field(default=0, ge=0, le=LONGEST_S, validation_alias="TASK_TIME_LIMIT")
    """Seconds after which a task is ended; 0 never does. Prefork and gevent; see TASK_OVERRUN for threads and solo."""

    queue_limits: str = Field(default="", validation_alias="TASK_TIME_LIMITS")
    """Both limits (soft/hard) for single queues, in place of the two above: ``critical=30/60,task_queue=600/660``."""

    overrun: Literal["warn", "exit"] = Field(default="warn", validation_alias="TASK_OVERRUN")
    """What a pod whose pool cannot end a task (threads, solo) does about one past its hard limit: warn says which it
    is, once; exit also ends the pod in order, and the message comes again with one delivery counted."""

    max_retries: int = Field(default=3, ge=0, le=MOST_RETRIES, validation_alias="TASK_MAX_RETRIES")
    """How often a task that failed with a temporary error is tried again. Then its message is a dead letter."""

    backoff_s: float = Field(default=1.0, ge=0, le=LONGEST_S, validation_alias="TASK_RETRY_BACKOFF")
    """Seconds before the first of these retries at most, doubled before each further one; the pause is drawn from
    0 to this (full jitter)."""

    backoff_max_s: float = Field(default=600.0, ge=0, le=LONGEST_S, validation_alias="TASK_RETRY_BACKOFF_MAX")
    """The longest of these pauses, in seconds."""

    queue_retries: str = Field(default="", validation_alias="TASK_RETRIES")
    """All three (retries/first pause/longest pause) for single queues: ``critical=5/0.5/60,task_queue=3/1/600``."""

    temporary_errors: str = Field(default="", pattern=ERRORS, validation_alias="TASK_TEMPORARY_ERRORS")
    """Errors that are tried again beside ``TemporaryError``: ``TimeoutError,requests.exceptions.ConnectionError``."""

    permanent_errors: str = Field(default="", pattern=ERRORS, validation_alias="TASK_PERMANENT_ERRORS")
    """Errors that make a dead letter at once beside ``PermanentError``."""

    max_memory_mb: int = Field(default=128, ge=0, le=1_048_576, validation_alias="WORKER_MAX_MEMORY")
    """Mebibytes after which a child of the prefork pool is replaced, once its task is done; 0 never. The default is
    half of what the pods of ``k8s/worker.yaml`` may have."""

    max_tasks: int = Field(default=1000, ge=0, le=1_000_000_000, validation_alias="WORKER_MAX_TASKS")
    """Tasks after which a child of the prefork pool is replaced; 0 never."""

    @field_validator("queue_limits")
    @classmethod
    def _limits_by_queue(cls, value: str) -> str:
        """Each queue with two numbers, the first below the second."""
        TimeLimits(queues=parse_limits(value))
        return value

    @field_validator("queue_retries")
    @classmethod
    def _retries_by_queue(cls, value: str) -> str:
        """Each queue with three numbers, the second not above the third."""
        Retries(queues=parse_retries(value))
        return value

    probe_port: int = Field(default=8080, ge=0, le=65535, validation_alias="PROBE_PORT")
    """Port on which a worker and beat answer `/startup`, `/ready`, `/health` and `/metrics`; 0 answers nobody. Several
    pods on one host each need their own."""

    ready_stall_s: float = Field(default=30.0, ge=1, le=86400, validation_alias="READY_STALL_S")
    """Seconds until `/ready` turns: messages are queued, there is room for them, and this pod took nothing; or its loop
    stands still."""

    health_stall_s: float = Field(default=60.0, ge=1, le=86400, validation_alias="HEALTH_STALL_S")
    """Seconds for which the loop of a worker or of beat stands still until `/health` turns. A task that runs in the
    loop, and a broker that is away, are no standing loop."""

    checkpoint_store: str = Field(default="redis", validation_alias="CHECKPOINT_STORE")
    """Where resumable tasks keep how far they are: the fleet's Redis, or an etcd cluster (v3.4 or newer)."""

    checkpoint_ttl_s: int = Field(default=604_800, ge=60, le=31_536_000, validation_alias="CHECKPOINT_TTL")
    """Seconds that a checkpoint is kept after it was last saved. A task that comes back later starts anew."""

    checkpoint_max_bytes: int = Field(default=65_536, ge=1024, le=1_000_000, validation_alias="CHECKPOINT_MAX_BYTES")
    """Largest content of one checkpoint. A larger one is not saved."""

    checkpoint_every_s: float = Field(default=2.0, ge=0.1, le=3600, validation_alias="CHECKPOINT_EVERY")
    """Seconds between two saves of a task: so much work is done again after a kill. Shorter costs more round trips."""

    checkpoint_ca: Path | None = Field(default=None, validation_alias="CHECKPOINT_CA")
    """File with the certificates that an ``etcds://`` store is checked against, instead of the usual ones."""

    @field_validator("checkpoint_store")
    @classmethod
    def _known_store(cls, value: str) -> str:
        """Only what a worker could use."""
        if value != "redis":
            from tasks.checkpoints.choosing import addresses  # noqa: PLC0415 - once it is known whose `tasks` is found

            addresses(value)
        return value

    @field_validator("jobs_folder", "checkpoint_ca", mode="before")
    @classmethod
    def _no_folder(cls, value: object) -> object:
        """An empty variable means that there is none, not the current folder."""
        return value or None

    @field_validator("jobs_folder")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        """The folder must not change with the place from which a worker is started."""
        if value is not None and not value.is_absolute():
            raise ValueError("relative")
        return value

    @property
    def time_limits(self) -> TimeLimits:
        """How long tasks may run; raises `ConfigurationError` where the soft limit is not below the hard one."""
        return TimeLimits(Limit(self.soft_limit_s, self.hard_limit_s), parse_limits(self.queue_limits), self.overrun)

    @property
    def retries(self) -> Retries:
        """Which failures are tried again; raises `ConfigurationError` where the first pause is above the longest."""
        default = Backoff(self.max_retries, self.backoff_s, self.backoff_max_s)
        names = (names_in(self.temporary_errors), names_in(self.permanent_errors))
        return Retries(default, parse_retries(self.queue_retries), *names)

    @property
    def default_queue(self) -> str:
        """Where events go that no setting names."""
        return self.task_queue

    @property
    def results(self) -> str:
        """Address of the result back end."""
        return self.result_backend or self.redis_url


ALLOWED = {
    **discord_settings.ALLOWED,
    "redis_url": "allowed is an address such as redis://host:6379/0 (rediss://, sentinel://, redis+socket://)",
    "task_queue": "allowed are letters, digits and _ . : -",
    "critical_queue": "allowed are letters, digits and _ . : -, and not the name in TASK_QUEUE",
    "result_backend": "allowed is an address of a Celery result back end, or nothing",
    "result_expires_s": "allowed is a whole number of seconds from 60 to 31536000",
    "jobs_folder": "allowed is the absolute path of a folder, or nothing",
    "checkpoint_store": "allowed is redis, or etcd://host:2379 with more hosts after commas (etcds:// for TLS)",
    "checkpoint_ttl_s": "allowed is a whole number of seconds from 60 to 31536000",
    "checkpoint_max_bytes": "allowed is a whole number of bytes from 1024 to 1000000",
    "checkpoint_every_s": "allowed is a number of seconds from 0.1 to 3600",
    "checkpoint_ca": "allowed is the path of a file, or nothing",
    "pulse_every_s": "allowed is a number of seconds from 0 (off) to 86400",
    "soft_limit_s": "allowed is a number of seconds from 0 (none) to 31536000, below TASK_TIME_LIMIT",
    "hard_limit_s": "allowed is a number of seconds from 0 (none) to 31536000",
    "queue_limits": "allowed is QUEUE=SOFT/HARD in seconds (0: none), soft below hard, by commas",
    "overrun": "allowed is warn or exit",
    "max_retries": "allowed is a whole number from 0 to 1000",
    "backoff_s": "allowed is a number of seconds from 0 to 31536000, not above TASK_RETRY_BACKOFF_MAX",
    "backoff_max_s": "allowed is a number of seconds from 0 to 31536000",
    "queue_retries": "allowed is QUEUE=RETRIES/FIRST/LONGEST pause in seconds, first not above longest, by commas",
    "temporary_errors": "allowed are names of errors such as TimeoutError,requests.exceptions.ConnectionError",
    "permanent_errors": "allowed are names of errors such as ValueError,jsonschema.exceptions.ValidationError",
    "max_memory_mb": "allowed is a whole number of MiB from 0 (off) to 1048576",
    "max_tasks": "allowed is a whole number from 0 (off) to 1000000000",
    "probe_port": "allowed is a free port from 1 to 65535, or 0 (off)",
    "ready_stall_s": "allowed is a number of seconds from 1 to 86400",
    "health_stall_s": "allowed is a number of seconds from 1 to 86400",
}


def called_as() -> str:
    """How a person called the command line: ``run`` tells, which starts it for them."""
    return os.environ.get("HEADROOM_COMMAND") or "python -m app"


def load_settings() -> Settings:
    """Read the environment.

    Raises:
        ConfigurationError: a value is not allowed; one line, without any password in an address.
    """
    try:
        settings = Settings()
    except ValidationError as error:
        first = error.errors()[0]
        variable = str(first["loc"][0])
        raise ConfigurationError(_refusal(variable, first["input"])) from None
    if settings.critical_queue == settings.task_queue:
        raise ConfigurationError(_refusal("CRITICAL_QUEUE", settings.critical_queue))
    for field, built in (("soft_limit_s", "time_limits"), ("backoff_s", "retries")):
        try:
            getattr(settings, built)
        except ConfigurationError:
            raise ConfigurationError(_refusal(field, getattr(settings, field))) from None
    if problem := settings.half():
        raise ConfigurationError(problem)
    return settings


def names_in(text: str) -> tuple[str, ...]:
    """Names that are separated by commas."""
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def variables() -> dict[str, str]:
    """Field name -> the environment variable that it is read from."""
    return {name: str(info.validation_alias) for name, info in Settings.model_fields.items()}


def port_refusal(port: int, why: str) -> str:
    """One line for a probe port that cannot be had."""
    return f"PROBE_PORT={str(port)!r}: {why}; {ALLOWED['probe_port']}"


def _refusal(variable: str, value: object) -> str:
    field = next(name for name, alias in variables().items() if variable in (name, alias))
    shown = "***" if field == "discord_token" else without_password(str(value))
    return f"{variables()[field]}={shown!r}: {ALLOWED[field]}"


def without_password(address: str) -> str:
    """The address with its user and password replaced by stars, fit for a message or a log."""
    return re.sub(r"//[^@/\s]*@", "//***@", address)
