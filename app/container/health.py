"""What a health check runs inside the container: a few milliseconds, nothing but the standard library.

worker, beat   `/ready` of its probes answers 200 (see `app.probes`): it consumes, and its loop turns. While Redis is
               away a worker does not, and says so. Kubernetes asks the probes themselves
flower         its page answers
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PORTS = {"worker": 8080, "beat": 8080, "flower": 5555}
PATHS = {"worker": "/ready", "beat": "/ready", "flower": "/healthcheck"}
USAGE = f"usage: python3 -m app.container health {'|'.join(PORTS)} [PORT]\n"
ANSWER_S = 3.0


def complaint(role: str, port: int = 0) -> str | None:
    """What is wrong with the role in this container, in one line; None when it is well."""
    address = f"http://127.0.0.1:{port or PORTS[role]}{PATHS[role]}"
    try:
        with urllib.request.urlopen(address, timeout=ANSWER_S):
            return None
    except urllib.error.HTTPError as error:
        with error:
            return f"{role}: {_reasons(error.read()) or error}"
    except OSError as error:
        return f"{role} does not answer: {error}"


def _reasons(body: bytes) -> str:
    """The reasons in an answer of the probes."""
    try:
        return "; ".join(json.loads(body)["reasons"])
    except (ValueError, KeyError, TypeError):
        return ""


def main(arguments: Sequence[str]) -> int:
    """Look at one role: 0 well, 1 not (with one line that says why), 2 there is no such role or port."""
    role, port = (*arguments, "", "")[:2]
    if len(arguments) not in (1, 2) or role not in PORTS or not (port.isdigit() or len(arguments) == 1):
        sys.stderr.write(USAGE)
        return 2
    found = complaint(role, int(port or 0))
    if found:
        sys.stderr.write(f"{found}\n")
    return 1 if found else 0
