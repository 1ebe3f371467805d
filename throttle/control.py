"""The control address of a worker, from the side of whoever asks: the file that names it, and the asking.

A worker listens on the loopback interface, so that it is reached from its own container (its own machine) alone. Which
port, and the token without which it answers nobody, stand in a file of mode 0600 in the temporary folder, named by
fleet and pod. Who may read the file may drain the worker: its own user and root. Nobody else's file is believed.

A worker that dies leaves its file; then nobody answers at the address, or somebody else does who does not know the
token's answer. Its next incarnation replaces the file in one step.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote

from throttle.errors import WorkerNotReached

if TYPE_CHECKING:
    from throttle.settings import ThrottleSettings

HOST = "127.0.0.1"
ANSWER_S = 5.0
LONGEST_NAME = 200
MODE = 0o600


class Control(NamedTuple):
    """Where a worker is reached, and what it wants to hear."""

    port: int
    token: str
    pid: int


def file_of(settings: ThrottleSettings) -> Path:
    """The file of a pod."""
    name = quote(f"{settings.fleet}-{settings.pod}", safe="")[-LONGEST_NAME:]
    return Path(tempfile.gettempdir()) / f"headroom-{name}.control"


def publish(settings: ThrottleSettings, control: Control) -> Path:
    """Write the file, in place of one that is there. OSError when the folder cannot be written."""
    path = file_of(settings)
    new = path.with_suffix(f".{os.getpid()}")
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        json.dump(control._asdict(), file)
    new.replace(path)
    return path


def withdraw(settings: ThrottleSettings) -> None:
    """Remove the file, if it is still this process'."""
    with contextlib.suppress(OSError, WorkerNotReached):
        if find(settings).pid == os.getpid():
            file_of(settings).unlink()


def find(settings: ThrottleSettings) -> Control:
    """Read the file of a pod. Raises `WorkerNotReached` when there is none that can be believed."""
    path = file_of(settings)
    who = f"pod {settings.pod!r} of fleet {settings.fleet!r}"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, encoding="ascii") as file:
            about = os.fstat(handle)
            if about.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(about.st_mode) & 0o077:
                message = f"{path} belongs to another user, or others may read it: it is not believed"
                raise WorkerNotReached(message)
            read = cast("dict[str, Any]", json.load(file))
        return Control(int(read["port"]), str(read["token"]), int(read["pid"]))
    except FileNotFoundError:
        message = f"{who} does not run here, or is not up yet: there is no {path}"
        raise WorkerNotReached(message) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{path} cannot be read: {error}"
        raise WorkerNotReached(message) from None


def ask(control: Control, wish: dict[str, Any] | None = None) -> dict[str, Any]:
    """How the drain of a worker stands; with a wish (`{"timeout": 30}`, `{}`), begin it before. One request.

    Raises:
        WorkerNotReached: nobody answers there, or not as a worker of this pod would.
    """
    connection = http.client.HTTPConnection(HOST, control.port, timeout=ANSWER_S)
    headers = {"Authorization": f"Bearer {control.token}"}
    try:
        body = None if wish is None else json.dumps(wish)
        connection.request("GET" if wish is None else "POST", "/drain", body, headers)
        answer = connection.getresponse()
        text = answer.read(1 << 20).decode(errors="replace")
    except (OSError, OverflowError, http.client.HTTPException) as error:
        message = f"nobody answers at {HOST}:{control.port}: {error or type(error).__name__}"
        raise WorkerNotReached(message) from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        message = f"{HOST}:{control.port} answered {answer.status}: {text.strip()[:200]}"
        raise WorkerNotReached(message)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or "state" not in found:
        message = f"somebody else than this worker answers at {HOST}:{control.port}"
        raise WorkerNotReached(message)
    return cast("dict[str, Any]", found)
