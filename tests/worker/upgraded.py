# pyright: basic
"""The test app on a kombu in which something has moved that the take stands on: a class that it subclasses is gone."""

from __future__ import annotations

from kombu.transport import redis as kombu_redis

del kombu_redis.SentinelChannel

from tests.worker.workload import app  # noqa: E402 - installs the brake, so it comes after the change

__all__ = ["app"]
