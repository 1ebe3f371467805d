"""The one folder whose files jobs may touch, and the way into it that cannot be led outside.

The name of a file arrives in a message, and whoever may publish messages may name any file. So a
name is never handed to ``open``. It is walked from the folder's own descriptor, one step after the
other, and a step that is a symbolic link is refused by the kernel itself (``O_NOFOLLOW``). Nothing
that another process renames or links in the meantime can lead a job elsewhere, which a check by
``resolve()`` before an ``open()`` cannot say of itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

PARTIAL = ".partial"


class JobFileError(ValueError):
    """A job cannot have the file it was given; the message says why, in one line."""


def steps_below(folder: Path, name: str) -> tuple[str, ...]:
    """Split a name into the steps that lead to it from the folder.

    Args:
        folder: the jobs folder, absolute.
        name: relative to the folder, or absolute and inside it.

    Raises:
        JobFileError: the name is empty, contains ``..`` or a zero byte, or is absolute and outside.
    """
    if not name.strip() or "\0" in name:
        raise JobFileError(f"refused: {name!r} is not the name of a file")
    path = PurePosixPath(name)
    if ".." in path.parts:
        raise JobFileError(f"refused: {name!r} contains '..'")
    if path.is_absolute():
        inside = next((root for root in (folder, folder.resolve()) if path.is_relative_to(root)), None)
        if inside is None:
            raise JobFileError(f"refused: {name!r} is outside the jobs folder {folder}")
        path = path.relative_to(inside)
    if not path.parts:
        raise JobFileError(f"refused: {name!r} is the jobs folder itself, not a file in it")
    return path.parts


class JobFile:
    """A file inside the jobs folder, held open for reading, with the folder that it stands in.

    A context manager. Everything that is written goes through the descriptor of the same folder.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Walk to the file and open it.

        Raises:
            JobFileError: the name leads outside, over a symbolic link, to nothing, or to what is
                not a plain file; or the jobs folder itself does not exist.
        """
        *parents, self.name = steps_below(folder, name)
        self._asked = name
        self._parent = self._open_folder(folder)
        try:
            for step in parents:
                following = self._open(step, os.O_RDONLY | os.O_DIRECTORY)
                os.close(self._parent)
                self._parent = following
            # A pipe without a writer would block for ever; a plain file does not care.
            self._file = self._open(self.name, os.O_RDONLY | os.O_NONBLOCK)
            self._check_plain()
        except BaseException:
            os.close(self._parent)
            raise

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close both descriptors."""
        os.close(self._file)
        os.close(self._parent)

    @property
    def size(self) -> int:
        """Size in bytes, now."""
        return os.fstat(self._file).st_size

    def read(self, size: int) -> bytes:
        """Read at most ``size`` bytes from where the last read ended; empty at the end."""
        return os.read(self._file, size)

    def identity(self) -> list[int]:
        """What changes when the file does: its size, and when its content and its inode changed (ns)."""
        found = os.fstat(self._file)
        return [found.st_size, found.st_mtime_ns, found.st_ctime_ns]

    def seek(self, offset: int) -> None:
        """Let the next read begin at this byte."""
        os.lseek(self._file, offset, os.SEEK_SET)

    def create_partial(self, target: str) -> tuple[str, int]:
        """Make a new file beside this one that will become ``target``; returns its name and descriptor.

        Each run has one of its own, and copies into it what it goes on from: a run that was believed
        dead and comes back can neither write into the new one nor put the new one in place half
        written. It finds its own gone and fails.
        """
        name = f"{_start(target)}{os.urandom(4).hex()}{PARTIAL}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o644, dir_fd=self._parent)
        os.fsync(self._parent)
        return name, descriptor

    def open_partial(self, name: str, target: str) -> int | None:
        """A descriptor of an earlier run's partial file of ``target``, for reading; None when there is none."""
        if not _is_partial(name, target):
            return None
        try:
            return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._parent)
        except OSError:
            return None

    def remove_partials(self, target: str, *, but: str) -> None:
        """Remove the partial files of other runs of the same job: of those that died, and of those that did not."""
        for other in os.listdir(self._parent):  # noqa: PTH208 - a path has no descriptor
            if other != but and _is_partial(other, target):
                self.remove(other)

    def put_in_place(self, partial: str, target: str) -> None:
        """Rename the finished partial file to ``target`` in one step, replacing what stood there.

        Raises:
            JobFileError: a later run of the same job has removed it and has taken over.
        """
        try:
            os.rename(partial, target, src_dir_fd=self._parent, dst_dir_fd=self._parent)
        except FileNotFoundError:
            raise JobFileError(f"gave up on {target!r}: a later run of this job has taken over") from None

    def remove(self, partial: str) -> None:
        """Remove a partial file that will not be finished; one that is gone is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=self._parent)

    def _open_folder(self, folder: Path) -> int:
        try:
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise JobFileError(f"the jobs folder {folder} cannot be used: {error.strerror}") from None

    def _open(self, step: str, flags: int) -> int:
        try:
            return os.open(step, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._parent)
        except OSError as error:
            raise self._refusal(step, error) from None

    def _refusal(self, step: str, error: OSError) -> JobFileError:
        """Say in words why the kernel refused a step."""
        with contextlib.suppress(OSError):
            if stat.S_ISLNK(os.lstat(step, dir_fd=self._parent).st_mode):
                return JobFileError(f"refused: {self._asked!r} leads over the symbolic link {step!r}")
        if error.errno == errno.ENOENT:
            return JobFileError(f"no file {self._asked!r} in the jobs folder")
        return JobFileError(f"{self._asked!r} cannot be read: {error.strerror}")

    def _check_plain(self) -> None:
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            os.close(self._file)
            raise JobFileError(f"{self._asked!r} is not a plain file")


def _start(target: str) -> str:
    return f".{target}."


def _is_partial(name: str, target: str) -> bool:
    """Whether a name is that of a partial file of this target: eight hexadecimal digits in between, no more."""
    return re.fullmatch(re.escape(_start(target)) + "[0-9a-f]{8}" + re.escape(PARTIAL), name) is not None
