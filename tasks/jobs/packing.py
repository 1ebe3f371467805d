"""Compression that can be gone on from: the same bytes, whether a run did all of it or several runs a part each.

The source is compressed in blocks of a fixed size. At the end of a block the compressor remembers nothing, so that
another process can go on with a new one:

gzip   one member, as every program reads it. Its deflate stream is made of blocks that end on a byte (a sync flush) and
       look back at nothing before them; the checksum at the end is carried along as a number.
xz     a stream for each block, one after the other, as the format allows and `xz`, `lzma` and others read it.

Measured on 24 MiB of source text, against one piece: gzip 0.4 % larger, xz 12 % (its window is 8 MiB).
"""

from __future__ import annotations

import lzma
import struct
import zlib
from typing import Protocol

from tasks.jobs.folder import JobFileError

MIB = 1024 * 1024


class Packer(Protocol):
    """A method of compression. One for each run; `checksum` is all that a later run needs of it."""

    block: int
    """Bytes of the source after which it is cut."""
    checksum: int
    """Of the source up to the last byte that was fed."""
    form: str
    """Which bytes come out: another text, and nobody may go on with what is there."""

    def begin(self) -> bytes:
        """What stands before the first block."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """Compress the next bytes of a block; answers what is ready, perhaps nothing."""
        ...

    def cut(self) -> bytes:
        """End a block; answers the rest of it."""
        ...

    def end(self) -> bytes:
        """What stands behind the last block."""
        ...


class Gzip:
    """See `Packer`."""

    block = MIB
    form = f"gzip {MIB} zlib {zlib.ZLIB_RUNTIME_VERSION}"

    def __init__(self, offset: int = 0, checksum: int = 0) -> None:
        """Go on at a byte of the source."""
        self.checksum = checksum
        self._read = offset
        self._stream = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)

    def begin(self) -> bytes:
        """A header without name and time, so that each run writes the same."""
        return b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"

    def feed(self, chunk: bytes) -> bytes:
        """Compress."""
        self.checksum = zlib.crc32(chunk, self.checksum)
        self._read += len(chunk)
        return self._stream.compress(chunk)

    def cut(self) -> bytes:
        """End the block on a byte; the next compressor knows nothing of it."""
        rest = self._stream.flush(zlib.Z_SYNC_FLUSH)
        self._stream = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
        return rest

    def end(self) -> bytes:
        """An empty last block, the checksum and the size."""
        return self._stream.flush(zlib.Z_FINISH) + struct.pack("<II", self.checksum, self._read % 2**32)


class Xz:
    """See `Packer`. Each stream has a checksum of its own."""

    block = 4 * MIB
    form = f"xz {4 * MIB}"

    def __init__(self, offset: int = 0, checksum: int = 0) -> None:
        """Go on at a byte of the source."""
        self.checksum = checksum
        self._empty = offset == 0
        self._stream = lzma.LZMACompressor()

    def begin(self) -> bytes:
        """Nothing: the first stream has its own header."""
        return b""

    def feed(self, chunk: bytes) -> bytes:
        """Compress."""
        self._empty = False
        return self._stream.compress(chunk)

    def cut(self) -> bytes:
        """End the stream."""
        rest = self._stream.flush()
        self._stream = lzma.LZMACompressor()
        return rest

    def end(self) -> bytes:
        """An empty source is one empty stream."""
        return self._stream.flush() if self._empty else b""


# The name of the method -> its packer, and the ending of the file that it makes.
METHODS: dict[str, tuple[type[Gzip | Xz], str]] = {"gzip": (Gzip, ".gz"), "lzma": (Xz, ".xz")}


def method_of(name: str) -> tuple[type[Gzip | Xz], str]:
    """A method by its name. Raises `JobFileError`."""
    if name not in METHODS:
        raise JobFileError(f"unknown method {name!r}: allowed are {', '.join(METHODS)}")
    return METHODS[name]
