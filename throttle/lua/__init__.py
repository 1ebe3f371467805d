"""The Lua of the operations: one file each, and parts (they begin with an underscore) that several share.

The header of a file says its keys, arguments and answers, and in its USES line which parts are put before it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from redis.exceptions import NoScriptError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script with the shared parts it uses."""

    name: str
    source: str
    sha: str


def read_lua(name: str) -> str:
    """Text of `<name>.lua`."""
    return (files("throttle") / "lua" / f"{name}.lua").read_text(encoding="utf-8")


def without_comments(text: str) -> str:
    """The Lua lines that do something; Redis need not carry the prose."""
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("--"))


@cache
def script(name: str) -> Script:
    """The operation `name`, put together from the files that its USES line names."""
    return assemble(name, read_lua)


def assemble(name: str, read: Callable[[str], str]) -> Script:
    """An operation whose files `read` gives: its parts in the order of its USES line, then its own text."""
    body = read(name)
    uses = re.search(r"^-- USES ([\w ]+)$", body, re.MULTILINE)
    parts = [read(f"_{part}") for part in (uses.group(1).split() if uses else [])]
    source = without_comments("\n".join([*parts, body]))
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def evaluate(client: redis.Redis, command: Sequence[Any], source: str) -> Any:
    """Carry an EVALSHA out: its answer as the script gave it. One round trip, three where the server lacks the script.

    Raises what Redis raises.
    """
    send = cast("Any", client).execute_command  # redis-py leaves its arguments untyped
    try:
        return send(*command)
    except NoScriptError:
        client.script_load(source)
        return send(*command)
