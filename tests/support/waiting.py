"""Waiting for conditions: the function that the local fleet uses, under the tests' own roof."""

from __future__ import annotations

from app.local.waiting import WaitError, wait_until

__all__ = ["WaitError", "wait_until"]
