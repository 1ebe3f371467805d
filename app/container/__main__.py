"""The image's entry point, see the package. Imports nothing of Celery before the first process can be ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from app.container import health

if TYPE_CHECKING:
    from collections.abc import Sequence

APPLICATION = "app.container.application"


def options(role: str) -> list[str]:
    """What a role gets unless the command says otherwise: of an option that is given twice, Celery takes the last."""
    return {
        "worker": ["--loglevel=INFO"],
        # Beat looks after itself at least every 5 s, and writes no file: its container may be read-only.
        "beat": ["--loglevel=INFO", "--max-interval=5", "--pidfile="],
        "flower": [],
    }.get(role, [])


def main(arguments: Sequence[str]) -> int:
    """Run a role until it ends, or look at one; the exit code is the container's."""
    if not arguments:
        sys.stderr.write("usage: python3 -m app.container worker|beat|flower [OPTIONS], or health ROLE [PORT]\n")
        return 2
    if arguments[0] == "health":
        return health.main(arguments[1:])
    from throttle.worker import ending  # noqa: PLC0415 - a check does without it

    ending.listen()
    role, *given = arguments
    sys.argv = ["celery", "-A", APPLICATION, role, *options(role), *given]
    from celery.__main__ import main as celery  # noqa: PLC0415 - gevent must be able to patch first

    celery()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
