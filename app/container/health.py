"""What a health check runs inside the container: a few milliseconds, nothing but the standard library.

worker, beat   its main loop has turned within the last 15 s (`lifesign`). While Redis is away a worker's does not:
               it consumes nothing, and says so. Good for a look, for `depends_on` and for a readiness probe, and
               not for a liveness probe: a restart brings no Redis back. A beat's turns whether it leads, stands by or
               is cut off from Redis
flower         its page answers
"""

from __future__ import annotations

import sys
import urllib.request
from typing import TYPE_CHECKING

from app.container import lifesign

if TYPE_CHECKING:
    from collections.abc import Sequence

ROLES = ("worker", "beat", "flower")
FLOWER = "http://127.0.0.1:5555/healthcheck"
ANSWER_S = 3.0


def complaint(role: str, *, flower: str = FLOWER) -> str | None:
    """What is wrong with the role in this container, in one line; None when it is well."""
    if role == "flower":
        try:
            with urllib.request.urlopen(flower, timeout=ANSWER_S):  # noqa: S310 - an http address of this container
                return None
        except OSError as error:
            return f"flower does not answer: {error}"
    age_s = lifesign.age_s(role)
    if age_s is None:
        return f"{role} is not up: there is no {lifesign.path(role)}"
    if age_s > lifesign.STALE_S:
        return f"{role} gave its last sign of life {age_s:.0f} s ago; allowed are {lifesign.STALE_S:.0f}"
    return None


def main(arguments: Sequence[str]) -> int:
    """Look at one role: 0 well, 1 not (with one line that says why), 2 there is no such role."""
    if len(arguments) != 1 or arguments[0] not in ROLES:
        sys.stderr.write(f"usage: python3 -m app.container health {'|'.join(ROLES)}\n")
        return 2
    found = complaint(arguments[0])
    if found:
        sys.stderr.write(f"{found}\n")
    return 1 if found else 0
