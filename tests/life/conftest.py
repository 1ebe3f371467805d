"""Fixtures of the longer proofs about a pod's life: those of the worker tests. And what this machine cannot try."""

from __future__ import annotations

import os

import pytest

from tests.support.namespaces import namespace
from tests.worker.conftest import every_pool, fleet

__all__ = ["every_pool", "fleet"]

collect_ignore: list[str] = []


def pytest_report_header() -> list[str]:
    """Say what cannot be tried here."""
    return [] if namespace() else ["life: no PID namespace can be made here; test_first_process is left out"]


if not namespace():
    if os.environ.get("CI") == "true":
        raise pytest.UsageError("no PID namespace can be made here: CI needs root and unshare")
    collect_ignore.append("test_first_process.py")
