"""What can be wrong with a connection: the toxics of `app.local.proxy`, named as toxiproxy names them.

Plain values; what they do to the bytes is the proxy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Latency:
    """Each chunk arrives `delay_s` later, give or take up to `jitter_s`."""

    delay_s: float
    jitter_s: float = 0.0


@dataclass(frozen=True)
class Bandwidth:
    """No more than `bytes_per_s`."""

    bytes_per_s: float


@dataclass(frozen=True)
class Timeout:
    """What is sent is swallowed. The connection ends `after_s` after the next byte; None: it stays for ever."""

    after_s: float | None = None


@dataclass(frozen=True)
class ResetPeer:
    """The connection ends by RST, `after_s` after the next byte."""

    after_s: float = 0.0


@dataclass(frozen=True)
class SlowClose:
    """The end of one side reaches the other `delay_s` later."""

    delay_s: float


@dataclass(frozen=True)
class LimitData:
    """The connection ends when it has carried `count` bytes in one direction since it began."""

    count: int


@dataclass(frozen=True)
class Slicer:
    """Data arrives in pieces of `average` bytes, give or take `variation`, with `pause_s` between them."""

    average: int
    variation: int = 0
    pause_s: float = 0.0


@dataclass(frozen=True)
class Hold:
    """Nothing passes until this is removed; then all that was sent meanwhile arrives."""


Toxic: TypeAlias = Latency | Bandwidth | Timeout | ResetPeer | SlowClose | LimitData | Slicer | Hold
