"""The content of a checkpoint as text: JSON in an envelope with its versions, of limited size."""

from __future__ import annotations

import json
from typing import Any, cast

from tasks.checkpoints.protocol import CheckpointError, TooLarge

LAYOUT = 1
"""Of the envelope. Raise it when that changes: what older ones wrote is then no use any more."""


class Unusable(CheckpointError):
    """What is stored cannot be gone on from; the text says why, in a few words."""


def pack(context: dict[str, Any], version: int, max_bytes: int) -> bytes:
    """The content of a checkpoint.

    Args:
        context: what the task wants to know again; plain JSON values.
        version: the task's own, of what its context means.
        max_bytes: allowed size of the result.

    Raises:
        TooLarge: it is larger.
        ValueError, TypeError: it is no JSON (or has nan or infinity in it).
    """
    envelope = {"layout": LAYOUT, "version": version, "context": context}
    packed = json.dumps(envelope, allow_nan=False, separators=(",", ":")).encode()
    if len(packed) > max_bytes:
        message = f"checkpoint of {len(packed)} bytes: allowed are {max_bytes} (CHECKPOINT_MAX_BYTES)"
        raise TooLarge(message)
    return packed


def unpack(packed: bytes, version: int) -> dict[str, Any]:
    """The context in a content. Raises `Unusable` when it does not parse or is of another version."""
    try:
        envelope: object = json.loads(packed)
    except (ValueError, RecursionError):
        raise Unusable("it does not parse") from None
    if not isinstance(envelope, dict):
        raise Unusable("it does not parse")
    parts = cast("dict[str, Any]", envelope)
    if parts.get("layout") != LAYOUT:
        message = f"its layout is {shown(parts.get('layout'))}, this code reads {LAYOUT}"
        raise Unusable(message)
    if parts.get("version") != version:
        message = f"its version is {shown(parts.get('version'))}, this code reads {version}"
        raise Unusable(message)
    context = parts.get("context")
    if not isinstance(context, dict):
        raise Unusable("it does not parse")
    return cast("dict[str, Any]", context)


def shown(value: object) -> str:
    """A value of unknown origin, short enough for a line of a log."""
    return repr(value)[:40]
