"""Settings of the application, read from the environment in this one place.

The brake's own (``THROTTLE_*``, ``POD_NAME``) are in ``throttle/settings.py``. A bad value stops the
start with one line that names the variable, the value and what is allowed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path  # noqa: TC003 - pydantic reads the annotation at run time

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from throttle.errors import ConfigurationError

NAME = r"^[A-Za-z0-9_.:-]+$"
ADDRESS = r"^(redis|rediss|sentinel|redis\+socket)://\S+$"


class Settings(BaseSettings):
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

    @field_validator("jobs_folder", mode="before")
    @classmethod
    def _no_folder(cls, value: object) -> object:
        """An empty variable means that there is no folder, not the current one."""
        return value or None

    @field_validator("jobs_folder")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        """The folder must not change with the place from which a worker is started."""
        if value is not None and not value.is_absolute():
            raise ValueError("relative")
        return value

    @property
    def results(self) -> str:
        """Address of the result back end."""
        return self.result_backend or self.redis_url


ALLOWED = {
    "redis_url": "allowed is an address such as redis://host:6379/0 (rediss://, sentinel://, redis+socket://)",
    "task_queue": "allowed are letters, digits and _ . : -",
    "critical_queue": "allowed are letters, digits and _ . : -, and not the name in TASK_QUEUE",
    "result_backend": "allowed is an address of a Celery result back end, or nothing",
    "result_expires_s": "allowed is a whole number of seconds from 60 to 31536000",
    "jobs_folder": "allowed is the absolute path of a folder, or nothing",
    "pulse_every_s": "allowed is a number of seconds from 0 (off) to 86400",
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
    return settings


def variables() -> dict[str, str]:
    """Field name -> the environment variable that it is read from."""
    return {name: str(info.validation_alias) for name, info in Settings.model_fields.items()}


def _refusal(variable: str, value: object) -> str:
    field = next(name for name, alias in variables().items() if variable in (name, alias))
    return f"{variable}={without_password(str(value))!r}: {ALLOWED[field]}"


def without_password(address: str) -> str:
    """The address with its user and password replaced by stars, fit for a message or a log."""
    return re.sub(r"//[^@/\s]*@", "//***@", address)
