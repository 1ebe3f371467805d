"""Registers the fixtures that all tests share; see ``tests.support``."""

from __future__ import annotations

pytest_plugins = ["tests.support.etcd", "tests.support.servers", "tests.support.workers"]
