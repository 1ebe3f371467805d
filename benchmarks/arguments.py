"""How the benchmarks read their command lines: what is wrong is said in one line."""

from __future__ import annotations

import argparse
import math
from typing import NoReturn

POOLS = ("prefork", "threads", "gevent", "solo")
SYSTEMS = {"headroom": "take", "requeue": "requeue", "celery": ""}
"""What is compared, and the gate of each: the brake at the take, the brake before the pool, none."""


class Parser(argparse.ArgumentParser):
    """Reads the options of one benchmark."""

    def __init__(self, name: str, description: str | None) -> None:
        """``description`` is printed as it stands."""
        super().__init__(
            prog=f"benchmarks {name}",
            description=description,
            formatter_class=argparse.RawTextHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def add_systems(parser: argparse.ArgumentParser) -> None:
    """The option that chooses among them."""
    parser.add_argument(
        "--system",
        choices=tuple(SYSTEMS),
        action="append",
        help="measure this system (all): the brake, the same at its other gate, plain Celery; may be repeated",
    )


def add_fleet(parser: argparse.ArgumentParser, *, rate: float) -> None:
    """The options of a fleet under a trickle of tasks; `rate` is what is published a second unless it is said."""
    parser.add_argument("--pods", type=whole, default=5, help="workers (5)")
    parser.add_argument("--rate", type=positive, default=rate, help=f"tasks published a second ({rate:g})")
    parser.add_argument("--pool", choices=POOLS, default="prefork")


def gates(options: argparse.Namespace) -> list[str]:
    """The gates of the chosen systems, in their order."""
    return [gate for system, gate in SYSTEMS.items() if system in (options.system or SYSTEMS)]


def whole(text: str) -> int:
    """A whole number from 1 to 1,000,000."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= value <= 1_000_000:  # noqa: PLR2004 - said in the message
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a whole number from 1 to 1000000")
    return value


def positive(text: str) -> float:
    """A number above 0, up to 3600."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 3600:  # noqa: PLR2004 - said in the message
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a number above 0 and up to 3600")
    return value
