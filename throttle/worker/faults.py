# pyright: basic
"""Whose fault an error is: the broker's, which is away and comes back, or that of the message at hand."""

from __future__ import annotations

import redis
from kombu.exceptions import OperationalError

AWAY = (redis.RedisError, OSError, OperationalError)
"""What Redis and kombu raise while the broker is away. kombu's own `connection_errors` have a KeyError among them."""
