"""Tasks for a worker that is a container's first process."""
# pyright: basic

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from celery import shared_task


@shared_task
def leave_behind(seconds: float) -> int:
    """Start a process and let it go, as a script does that puts a command into the background. Returns its number."""
    shell = ["sh", "-c", f"sleep {float(seconds)} >&- 2>&- & echo $!"]
    return int(subprocess.run(shell, check=True, capture_output=True, text=True).stdout)


@shared_task
def slow_once(folder: str) -> str:
    """Hang the first time, having written down in which process; come back at once the second time."""
    note = Path(folder) / "slow-once"
    if note.exists():
        return "second time"
    note.write_text(str(os.getpid()))
    time.sleep(600)
    return "first time"


@shared_task
def devour() -> int:
    """Take memory until the kernel's killer comes, or a GiB where it does not. Returns how many bytes it got."""
    taken = [b"x" * (16 << 20) for _ in range(64)]
    return sum(map(len, taken))
