"""Work on a person's own files: compress one, or compute its checksum.

Both read in chunks, so that a file of any size needs a constant amount of memory, and both may be
run twice: a task comes back when its pod dies (at-least-once). The result of ``compress`` appears
under its name in one step, whole or not at all, and is the same bytes each time.

| a crash | leaves |
|---|---|
| while reading or writing | a hidden ``.partial`` file, which the next run of the same job removes |
| after the rename | the finished file; the next run writes the same bytes again |
"""
# pyright: basic

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypedDict

from celery import current_app, shared_task

from tasks.jobs.folder import JobFile, JobFileError

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 256 * 1024
PROGRESS_EVERY_S = 0.5

# The name of the method -> the ending of the file that it makes.
ENDINGS = {"gzip": ".gz", "lzma": ".xz"}


class Compressed(TypedDict):
    """What ``compress`` answers; the names are relative to nothing but what the caller gave."""

    source: str
    result: str
    source_bytes: int
    result_bytes: int


class Checksum(TypedDict):
    """What ``checksum`` answers."""

    source: str
    source_bytes: int
    sha256: str


@shared_task(bind=True)
def compress(self: Any, path: str, method: str = "gzip") -> Compressed:
    """Compress a file of the jobs folder into a new one beside it (``.gz`` or ``.xz``).

    The source stays. While it runs, the task's state is PROGRESS with ``done_bytes`` and
    ``total_bytes`` (at most twice a second, where the application keeps results).

    Args:
        self: the task (given by Celery).
        path: of the file: relative to the jobs folder, or absolute and inside it.
        method: ``gzip`` or ``lzma``.

    Raises:
        JobFileError: the method is unknown, or the file is refused, missing or not a plain file.
        OSError: the disk failed or is full; the partial file is removed.
    """
    if method not in ENDINGS:
        raise JobFileError(f"unknown method {method!r}: allowed are {', '.join(ENDINGS)}")
    with JobFile(jobs_folder(), path) as source:
        target = source.name + ENDINGS[method]
        partial, descriptor = source.create_partial(target)
        try:
            with os.fdopen(descriptor, "wb") as output:
                read = _compress_into(output, source, method, _progress(self, source.size))
                output.flush()
                os.fsync(descriptor)
                written = output.tell()
            source.put_in_place(partial, target)
        except BaseException:
            source.remove(partial)
            raise
    return Compressed(source=path, result=path + ENDINGS[method], source_bytes=read, result_bytes=written)


@shared_task(bind=True)
def checksum(self: Any, path: str) -> Checksum:
    """Compute the SHA-256 of a file of the jobs folder; progress and errors as for ``compress``."""
    digest = hashlib.sha256()
    with JobFile(jobs_folder(), path) as source:
        tell = _progress(self, source.size)
        read = 0
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            read += len(chunk)
            tell(read)
    return Checksum(source=path, source_bytes=read, sha256=digest.hexdigest())


def jobs_folder() -> Path:
    """The folder of the application that runs the task (its setting ``headroom_jobs_folder``).

    Raises:
        JobFileError: the application has not set one: no file may be touched then.
    """
    folder: str | None = getattr(current_app.conf, "headroom_jobs_folder", None)
    if not folder:
        raise JobFileError("this application has no jobs folder: set JOBS_FOLDER")
    return Path(folder)


def _compress_into(output: IO[bytes], source: JobFile, method: str, tell: Callable[[int], None]) -> int:
    """Write the whole source into ``output``, compressed; returns how many bytes were read."""
    read = 0
    with _packer(output, method) as packer:
        while chunk := source.read(CHUNK):
            packer.write(chunk)
            read += len(chunk)
            tell(read)
    return read


def _packer(output: IO[bytes], method: str) -> gzip.GzipFile | lzma.LZMAFile:
    if method == "gzip":
        # Neither name nor time inside, so that a second run writes the same bytes.
        return gzip.GzipFile(filename="", mode="wb", fileobj=output, mtime=0)
    return lzma.LZMAFile(output, "wb")


def _progress(task: Any, total: int) -> Callable[[int], None]:
    """A function that reports how many bytes are done, seldom enough to cost nothing."""
    told = time.monotonic()

    def tell(done: int) -> None:
        nonlocal told
        now = time.monotonic()
        if task.request.called_directly or now - told < PROGRESS_EVERY_S:
            return
        told = now
        task.update_state(state="PROGRESS", meta={"done_bytes": done, "total_bytes": total})

    return tell
