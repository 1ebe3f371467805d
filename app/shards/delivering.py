"""What hands Discord's events on in a pod: its outbox, with the app's writer of messages or a user's callback."""
# pyright: basic

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

from app.shards.messages import MessageWriter
from tasks.shards.delivery.delivery import Outbox
from throttle.errors import ConfigurationError

if TYPE_CHECKING:
    from celery import Celery

    from app.settings import Settings
    from tasks.shards.delivery.callback import Callback
    from tasks.shards.delivery.holder import Holder
    from tasks.shards.operations import Operations


def make_outbox(app: Celery, settings: Settings, operations: Operations, holder: Holder) -> Outbox:
    """The outbox of this pod, not begun; `operations` are its member's.

    Raises:
        ConfigurationError: the callback that is asked for cannot be had.
    """
    writer = MessageWriter(app, settings.discord_bot_id, settings.shard_routes, settings.shard_task)
    callback = load_callback(settings.shard_callback) if settings.shard_callback else None
    return Outbox(settings.redis_url, operations, writer, holder, callback=callback)


def load_callback(name: str) -> Callback:
    """The function that `module:function` names. Raises `ConfigurationError`, in one line."""
    module, _, function = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"SHARD_CALLBACK={name!r}: {error}; allowed is module:function") from None
    if not callable(found):
        raise ConfigurationError(f"SHARD_CALLBACK={name!r}: that is no function; allowed is module:function")
    return cast("Callback", found)
