"""Fixtures of the longer proofs about a pod's life: those of the worker tests."""

from __future__ import annotations

from tests.worker.conftest import every_pool, fleet

__all__ = ["every_pool", "fleet"]
