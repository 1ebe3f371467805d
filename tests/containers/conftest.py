"""Decides what of this folder can be tried on this machine; CI has to be able to try all but the stack."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import pytest

collect_ignore: list[str] = []


@cache
def namespace() -> tuple[str, ...]:
    """The command that runs another as the first process of a PID namespace; empty where none can be had."""
    for identity in ((), ("--user", "--map-root-user")):
        command = ("unshare", *identity, "--pid", "--fork", "--mount-proc", "--kill-child")
        if (
            shutil.which("unshare")
            and subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0
        ):
            return command
    return ()


def pytest_report_header() -> list[str]:
    """Say what cannot be tried here."""
    missing: list[str] = []
    if not namespace():
        missing.append("containers: no PID namespace can be made here; test_first_process is left out")
    if "HEADROOM_DOCKER" not in os.environ:
        missing.append("containers: no Docker engine was given; test_stack is left out (.ci/containers runs it)")
    return missing


if not namespace():
    if os.environ.get("CI") == "true":
        raise pytest.UsageError("no PID namespace can be made here: CI needs root and unshare")
    collect_ignore.append("test_first_process.py")
if "HEADROOM_DOCKER" not in os.environ:
    collect_ignore.append("test_stack.py")
