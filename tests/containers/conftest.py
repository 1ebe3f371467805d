"""Decides what of this folder can be tried on this machine: all but the stack."""

from __future__ import annotations

import os

collect_ignore: list[str] = []


def pytest_report_header() -> list[str]:
    """Say what cannot be tried here."""
    if "HEADROOM_DOCKER" in os.environ:
        return []
    return ["containers: no Docker engine was given; test_stack is left out (.ci/containers runs it)"]


if "HEADROOM_DOCKER" not in os.environ:
    collect_ignore.append("test_stack.py")
