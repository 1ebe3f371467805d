"""Work on a person's own files: compress one, or compute its checksum.

Both read in chunks, so that a file of any size needs a constant amount of memory. Both keep a checkpoint
(`tasks.checkpoints`): a task comes back when its pod dies (at-least-once), and goes on where it was. The result of
``compress`` appears under its name in one step, whole or not at all, and is the same bytes however often it was killed.

A checkpoint of ``compress`` says how far the source is packed and how long the hidden ``.partial`` file was then,
which is on the disk before it says so. The next run copies that much of it, checked by a CRC, into a partial file of
its own and goes on. It needs room for both meanwhile; in return a run that was only frozen has no file in common with
it.

| a crash | leaves |
|---|---|
| while reading or writing | a partial file; the next run goes on from the length that the checkpoint names |
| between a write and the save | a longer partial file than the checkpoint says; the rest is done again |
| while the earlier partial file is copied | both; the checkpoint still names it, and the next run removes the other |
| after the rename | the finished file; the next run writes the same bytes again |

A source that has changed (size, times), a partial file that is gone, shorter or damaged, or another version of zlib
is a reason to start anew. A source that changes while it is read fails the job.
"""
# pyright: basic

from __future__ import annotations

import errno
import hashlib
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from celery import current_app, shared_task

from tasks.jobs import hashing
from tasks.jobs.folder import JobFile, JobFileError
from tasks.jobs.packing import method_of
from tasks.jobs.resumable import Resumable
from throttle.errors import TemporaryError

if TYPE_CHECKING:
    from tasks.checkpoints import Checkpoint
    from tasks.jobs.packing import Gzip, Xz

CHUNK = 256 * 1024
PASSING = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT})
"""Errors of a disk, most of all in the network, that pass: a retry goes on. After others the room is given back."""


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


class Mark(NamedTuple):
    """A point from which ``compress`` can go on."""

    offset: int = 0
    """Bytes of the source that are packed."""
    length: int = 0
    """Bytes of the partial file that they are packed in."""
    crc: int = 0
    """Of these bytes of the partial file."""
    checksum: int = 0
    """Of the packer."""


@shared_task(bind=True, base=Resumable)
def compress(self: Any, path: str, method: str = "gzip") -> Compressed:
    """Compress a file of the jobs folder into a new one beside it (``.gz`` or ``.xz``).

    The source stays. While it runs, the task's state is PROGRESS with ``progress`` (0 to 1), ``done_bytes`` and
    ``total_bytes`` (at most twice a second, where the application keeps results).

    Args:
        self: the task (given by Celery).
        path: of the file: relative to the jobs folder, or absolute and inside it.
        method: ``gzip`` or ``lzma``.

    Raises:
        JobFileError: the method is unknown, or the file is refused, missing, not a plain file or changed meanwhile.
        OSError: the disk is full or refuses; the partial file is removed.
        TemporaryError: the disk failed in a way that passes; the next try goes on.
    """
    packer, ending = method_of(method)
    with JobFile(jobs_folder(), path) as source:
        work = Compression(source, packer, source.name + ending)
        try:
            with self.checkpoint(settle=work.settle) as checkpoint:
                written = run_or_clean(work, checkpoint)
        finally:
            os.close(work.descriptor)
        read = source.size
    return Compressed(source=path, result=path + ending, source_bytes=read, result_bytes=written)


@shared_task(bind=True, base=Resumable)
def checksum(self: Any, path: str) -> Checksum:
    """Compute the SHA-256 of a file of the jobs folder; progress and errors as for ``compress``.

    Goes on at its checkpoint where `hashing.RESUMES`; elsewhere it reads the file again.
    """
    with JobFile(jobs_folder(), path) as source, self.checkpoint() as checkpoint:
        identity, total = source.identity(), source.size
        digest, read = begun(checkpoint, source)
        source.seek(read)
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            read += len(chunk)
            show = {"done_bytes": read, "total_bytes": total}
            if isinstance(digest, hashing.Resumable256) and read % hashing.BLOCK == 0 and checkpoint.due():
                checkpoint.save(
                    progress=read / max(total, read), show=show, source=identity, offset=read, state=digest.state()
                )
            else:
                checkpoint.tell(progress=read / max(total, read), show=show)
        _check_unchanged(source, identity)
    return Checksum(source=path, source_bytes=read, sha256=digest.hexdigest())


def run_or_clean(work: Compression, checkpoint: Checkpoint) -> int:
    """Run; what cannot be gone on from, or takes the room that others need, is not kept."""
    try:
        return work.run(checkpoint)
    except (OSError, JobFileError) as error:
        if isinstance(error, JobFileError) or error.errno not in PASSING:
            work.source.remove(work.partial)
            checkpoint.finish()
            raise
        raise TemporaryError(f"the disk of {work.source.name!r} failed: {error}") from error


def begun(checkpoint: Checkpoint, source: JobFile) -> tuple[Any, int]:
    """The digest to go on with, and from which byte of the source."""
    if not hashing.RESUMES:
        return hashlib.sha256(), 0
    saved = checkpoint.load()
    if saved is not None:
        try:
            if saved["source"] == source.identity() and 0 < saved["offset"] <= source.size:
                return hashing.Resumable256(saved["offset"], saved["state"]), saved["offset"]
            checkpoint.discard("the file has changed")
        except (KeyError, TypeError, ValueError):
            checkpoint.discard("it is not one of a checksum")
    return hashing.Resumable256(), 0


class Compression:
    """One run of ``compress``: the partial file that it writes, and how far it is."""

    def __init__(self, source: JobFile, packer: type[Gzip | Xz], target: str) -> None:
        """Make the partial file."""
        self.source, self._packer, self._target = source, packer, target
        self._identity = source.identity()
        self._mark = Mark()
        self.partial, self.descriptor = source.create_partial(target)

    def settle(self) -> None:
        """Bring what is written to the disk."""
        os.fsync(self.descriptor)

    def run(self, checkpoint: Checkpoint) -> int:
        """Pack from the checkpoint, or from the start, to the end; returns the size of the result."""
        self._resume(checkpoint)
        source, total = self.source, self._identity[0]
        mark = self._mark
        packer = self._packer(mark.offset, mark.checksum)
        length, crc = mark.length, mark.crc
        if not mark.length:
            length, crc = self.write(packer.begin(), length, crc)
        offset = mark.offset
        source.seek(offset)
        while chunk := source.read(min(CHUNK, packer.block - offset % packer.block)):
            length, crc = self.write(packer.feed(chunk), length, crc)
            offset += len(chunk)
            if offset % packer.block == 0 or offset >= total:
                length, crc = self.write(packer.cut(), length, crc)
                self._mark = Mark(offset, length, crc, packer.checksum)
                self._note(checkpoint)
            else:
                checkpoint.tell(progress=offset / max(total, offset), show=self._shown(offset))
        length, crc = self.write(packer.end(), length, crc)
        os.fsync(self.descriptor)
        _check_unchanged(source, self._identity)
        source.put_in_place(self.partial, self._target)
        source.remove_partials(self._target, but="")
        return length

    def _resume(self, checkpoint: Checkpoint) -> None:
        """Go on with what an earlier run left, if it can be gone on with."""
        saved = checkpoint.load()
        if saved is not None:
            why = self._copied(saved)
            if why:
                os.ftruncate(self.descriptor, 0)
                os.lseek(self.descriptor, 0, os.SEEK_SET)
                checkpoint.discard(why)
        if self._mark.offset:
            self._save(checkpoint)
        elif not checkpoint.unread:
            self.source.remove_partials(self._target, but=self.partial)

    def _copied(self, saved: dict[str, Any]) -> str:
        """Copy the earlier run's partial file; returns why that is of no use, or nothing."""
        try:
            mark = Mark(*map(int, saved["mark"]))
            name, identity, form = str(saved["partial"]), saved["source"], saved["form"]
        except (KeyError, TypeError, ValueError):
            return "it is not one of a compression"
        if identity != self._identity:
            return "the file has changed"
        if form != self._packer.form:
            return f"it was written by another version ({form})"
        earlier = self.source.open_partial(name, self._target)
        if earlier is None:
            return "its partial file is gone"
        try:
            length, crc = 0, 0
            while length < mark.length and (chunk := os.read(earlier, min(CHUNK, mark.length - length))):
                length, crc = self.write(chunk, length, crc)
        finally:
            os.close(earlier)
        if (length, crc) != (mark.length, mark.crc):
            return "its partial file is damaged"
        self._mark = mark
        return ""

    def write(self, packed: bytes, length: int, crc: int) -> tuple[int, int]:
        """Write all of it; returns the length and the CRC of the partial file then."""
        rest = memoryview(packed)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]
        return length + len(packed), zlib.crc32(packed, crc)

    def _shown(self, offset: int) -> dict[str, int]:
        return {"done_bytes": offset, "total_bytes": self._identity[0]}

    def _context(self) -> dict[str, Any]:
        return {
            "source": self._identity, "form": self._packer.form, "partial": self.partial, "mark": list(self._mark),
        }  # fmt: skip

    def _note(self, checkpoint: Checkpoint) -> None:
        offset = self._mark.offset
        checkpoint.note(progress=offset / max(1, self._identity[0]), show=self._shown(offset), **self._context())

    def _save(self, checkpoint: Checkpoint) -> None:
        """Name this run's partial file in the checkpoint; only then is the earlier one needed no more."""
        progress = self._mark.offset / max(1, self._identity[0])
        if checkpoint.save(progress=progress, show=self._shown(self._mark.offset), **self._context()):
            self.source.remove_partials(self._target, but=self.partial)


def _check_unchanged(source: JobFile, identity: list[int]) -> None:
    """Raises `JobFileError` when the source is not what it was at the start: the result would be a mixture."""
    if source.identity() != identity:
        raise JobFileError(f"{source.name!r} changed while it was read; nothing was made of it")


def jobs_folder() -> Path:
    """The folder of the application that runs the task (its setting ``headroom_jobs_folder``).

    Raises:
        JobFileError: the application has not set one: no file may be touched then.
    """
    folder: str | None = getattr(current_app.conf, "headroom_jobs_folder", None)
    if not folder:
        raise JobFileError("this application has no jobs folder: set JOBS_FOLDER")
    return Path(folder)
