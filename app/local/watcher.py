"""Ends what a local fleet started when the process that started it is gone, however it went.

Runs as a process of its own, from its file, with nothing but the standard library, in its own
session (so that Ctrl-C in the terminal does not reach it). Its standard input is a pipe. While the
owner lives, the pipe stays open and carries one order a line:

    + PGID      a process group was started (written by the group's leader before it becomes itself)
    - PGID      that group has ended
    folder PATH a temporary folder belongs to the owner

When the owner ends, even by SIGKILL, the kernel closes the pipe: every group still listed gets
SIGKILL and every listed folder is removed. An owner that ended everything itself leaves nothing to
do. This beats PR_SET_PDEATHSIG, which Linux alone has, which follows the thread that forked and not
the process, and which reaches one process and not its children.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys


def watch() -> None:
    """Follow the orders on standard input until it closes, then end what is left."""
    groups: set[int] = set()
    folders: list[str] = []
    for line in sys.stdin:
        order, _, value = line.rstrip("\n").partition(" ")
        if order == "+":
            groups.add(int(value))
        elif order == "-":
            groups.discard(int(value))
        elif order == "folder":
            folders.append(value)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch()
