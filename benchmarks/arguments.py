"""How the benchmarks read their command lines: what is wrong is said in one line."""

from __future__ import annotations

import argparse
import math
from typing import NoReturn

POOLS = ("prefork", "threads", "gevent", "solo")


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
