"""Settings of a Discord bot's shards: the part of `app.settings.Settings` that is off unless a bot is given."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings

from app.shards.routing import Routes, parse_names, parse_routes

TOKEN = re.compile(r"[\x21-\x7e]+")
DOTTED = r"^[A-Za-z_][\w.-]*$"
CALLBACK = r"^([A-Za-z_][\w.]*:[A-Za-z_][\w.]*)?$"
LABELS = r"^[A-Za-z0-9_./-]+=[A-Za-z0-9_.-]*(,[A-Za-z0-9_./-]+=[A-Za-z0-9_.-]*)*$"


class DiscordSettings(BaseSettings):
    """What the application needs to know of a bot."""

    discord_token: SecretStr | None = Field(default=None, validation_alias="DISCORD_TOKEN")
    """Token of the Discord bot whose shards the pods hold: a secret. Without it and DISCORD_BOT_ID there are none."""

    discord_bot_id: str = Field(default="", pattern=r"^([1-9][0-9]{0,19})?$", validation_alias="DISCORD_BOT_ID")
    """Id of the bot. Pods with the same id on the same Redis share its shards."""

    discord_intents: int = Field(default=1, ge=0, le=2**53 - 1, validation_alias="DISCORD_INTENTS")
    """What the bot wants to hear of, as Discord's sum of bits: 1 is guilds and channels."""

    discord_api_url: str = Field(
        default="https://discord.com/api/v10", pattern=r"^https?://[^\s?#]+$", validation_alias="DISCORD_API_URL"
    )
    """Discord's REST interface; a proxy of yours or a stand-in may take its place. The token is sent there."""

    discord_gateway_url: str = Field(
        default="", pattern=r"^(wss?://[^\s?#]+)?$", validation_alias="DISCORD_GATEWAY_URL"
    )
    """Where shards connect: empty is what the REST interface says."""

    shard_load_limit: int = Field(default=1_000_000, ge=1, le=1_000_000, validation_alias="SHARD_LOAD_LIMIT")
    """Shards that this pod holds at most, of the old and the new total together."""

    shard_connections: Literal["discord", "none", "simulated"] = Field(
        default="discord", validation_alias="SHARD_CONNECTIONS"
    )
    """What holds the shards: connections to Discord; none, for a worker that only works; or simulated ones, which try
    how pods agree and hear nothing."""

    shard_ttl_s: float = Field(default=9.0, ge=3, le=60, validation_alias="SHARD_TTL")
    """Seconds after its last beat in which a pod keeps its shards. The same for all pods of a bot."""

    shard_liveness: Literal["redis", "kubernetes"] = Field(default="redis", validation_alias="SHARD_LIVENESS")
    """Who says that a pod is over: its silence in Redis alone, or Kubernetes as well, which may know it earlier."""

    shard_pods: str = Field(
        default="app.kubernetes.io/name=headroom,app.kubernetes.io/component=worker",
        pattern=LABELS,
        validation_alias="SHARD_PODS",
    )
    """Labels of the pods that hold shards; read with SHARD_LIVENESS=kubernetes alone."""

    shard_events: str = Field(default="", validation_alias="SHARD_EVENTS")
    """Which of Discord's events go to which queue, the others to TASK_QUEUE: ``INTERACTION_CREATE=critical,*=-``
    (``*`` the others, ``-`` to nobody)."""

    shard_in_order: str = Field(default="", validation_alias="SHARD_IN_ORDER")
    """Events that one guild's workers do one after the other: ``MESSAGE_CREATE,MESSAGE_UPDATE``, or ``*`` for all."""

    shard_task: str = Field(
        default="tasks.jobs.gateway_event.gateway_event", pattern=DOTTED, validation_alias="SHARD_TASK"
    )
    """Name of the Celery task that has the events: it gets the name of an event and its data."""

    shard_callback: str = Field(default="", pattern=CALLBACK, validation_alias="SHARD_CALLBACK")
    """A function of yours that has the events in place of a queue, in the pod that holds the shard, at least once:
    ``module:function``."""

    @field_validator("discord_api_url", "discord_gateway_url")
    @classmethod
    def _address(cls, value: str) -> str:
        """An address whose host or port cannot be."""
        parts = urlsplit(value)
        if value and not (parts.hostname and parts.port != 0):  # to look at the port raises where it is no number
            raise ValueError("host")
        return value

    @field_validator("shard_events")
    @classmethod
    def _events(cls, value: str) -> str:
        parse_routes(value, "", "")
        return value

    @field_validator("shard_in_order")
    @classmethod
    def _in_order(cls, value: str) -> str:
        parse_names(value)
        return value

    @field_validator("discord_token", mode="before")
    @classmethod
    def _no_token(cls, value: object) -> object:
        """An empty variable is none."""
        return value or None

    @field_validator("discord_token")
    @classmethod
    def _token(cls, value: SecretStr | None) -> SecretStr | None:
        """What cannot be sent in a header, or has the word already that goes before it, is a mistake."""
        if value is not None and not TOKEN.fullmatch(value.get_secret_value()):
            raise ValueError("token")
        return value

    @property
    def shards(self) -> bool:
        """Whether the pods hold a Discord bot's shards."""
        return self.discord_token is not None

    @property
    def shard_routes(self) -> Routes:
        """Which events go where."""
        return parse_routes(self.shard_events, self.shard_in_order, self.default_queue)

    @property
    def shard_queues(self) -> list[str]:
        """Queues that Discord's events go to; none without a bot, or with a function in their place."""
        return self.shard_routes.queues() if self.shards and not self.shard_callback else []

    @property
    def default_queue(self) -> str:
        """The queue of events that are not named."""
        raise NotImplementedError

    def half(self) -> str:
        """What is wrong when one of token and bot is given without the other; '' when nothing is."""
        if self.shards == bool(self.discord_bot_id):
            return ""
        given, missing = ("TOKEN", "BOT_ID") if self.shards else ("BOT_ID", "TOKEN")
        return f"DISCORD_{given} is set and DISCORD_{missing} is not: allowed are both, or neither (no shards)"


ALLOWED = {
    "discord_token": "allowed is a token as Discord gives it, without the word Bot and without spaces, or nothing",
    "discord_bot_id": "allowed is a whole number of at most 20 digits, or nothing",
    "discord_intents": "allowed is a whole number from 0 to 9007199254740991",
    "discord_api_url": "allowed is an address such as https://discord.com/api/v10",
    "discord_gateway_url": "allowed is an address such as wss://gateway.discord.gg, or nothing",
    "shard_load_limit": "allowed is a whole number from 1 to 1000000",
    "shard_connections": "allowed is discord, none or simulated",
    "shard_ttl_s": "allowed is a number of seconds from 3 to 60",
    "shard_liveness": "allowed is redis or kubernetes",
    "shard_events": "allowed is EVENT=QUEUE by commas, EVENT a name such as MESSAGE_CREATE or *, QUEUE - for nobody",
    "shard_in_order": "allowed are names of events such as MESSAGE_CREATE by commas, or *",
    "shard_task": "allowed is the name of a Celery task",
    "shard_callback": "allowed is module:function, or nothing",
    "shard_pods": "allowed are labels such as app=worker,tier=bot",
}
