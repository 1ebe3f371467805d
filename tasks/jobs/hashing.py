"""SHA-256 that can be gone on from.

The state of hashlib's objects cannot be had, neither by pickle nor otherwise. What was weighed, on a file in memory:

===========================================  ===========  =========================================================
way                                          MB/s         why not
===========================================  ===========  =========================================================
hashlib, and read all of it again            1,500        work is done twice after each kill
SHA-256 in Python                            0.3          five thousand times slower
a package with a C extension                 -            one author, no wheels, for 112 bytes of state
libcrypto's own SHA256_Update, by ctypes     1,500        taken: the very code that hashlib calls, with a struct
                                                          whose members are documented
===========================================  ===========  =========================================================

Between two of its blocks of 64 bytes a SHA-256 is eight numbers and the count of bytes, whichever program computes
it; so what is saved by one version of OpenSSL can be gone on from with another. The functions are found through the
module that hashlib has loaded, and must compute right when this is imported. Where they cannot be had (a Python that
is linked statically, another library), `RESUMES` is false: a checksum then reads its file again from the start.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from typing import Any

BLOCK = 64
SIZE = 32


class _Context(ctypes.Structure):
    """OpenSSL's SHA256_CTX."""

    _fields_ = (
        ("h", ctypes.c_uint32 * 8),
        ("low", ctypes.c_uint32),
        ("high", ctypes.c_uint32),
        ("data", ctypes.c_uint32 * 16),
        ("num", ctypes.c_uint),
        ("md_len", ctypes.c_uint),
        ("_spare", ctypes.c_uint32 * 16),  # a library that keeps more than it says must not write past the end
    )


class Resumable256:
    """A SHA-256 whose state can be had and given."""

    def __init__(self, offset: int = 0, state: str = "") -> None:
        """Begin, or go on after `offset` bytes with the state that `state()` gave there.

        Raises:
            ValueError: this is no state.
        """
        self.context = _Context()
        _library.SHA256_Init(ctypes.byref(self.context))
        if offset or state:
            words = bytes.fromhex(state)
            if len(words) != SIZE or offset % BLOCK or not 0 <= offset < 2**61:
                raise ValueError("not the state of a SHA-256")
            for index in range(8):
                self.context.h[index] = int.from_bytes(words[4 * index : 4 * index + 4], "big")
            self.context.low, self.context.high = offset * 8 % 2**32, offset * 8 // 2**32

    def update(self, chunk: bytes) -> None:
        """Go on with these bytes. Other threads run meanwhile."""
        _library.SHA256_Update(ctypes.byref(self.context), chunk, len(chunk))

    def state(self) -> str:
        """All that must be kept, after a multiple of 64 bytes. ValueError after another number."""
        if self.context.num:
            raise ValueError("within a block")
        return b"".join(int(word).to_bytes(4, "big") for word in self.context.h).hex()

    def hexdigest(self) -> str:
        """The checksum of all bytes so far. Ends it."""
        digest = ctypes.create_string_buffer(SIZE)
        _library.SHA256_Final(digest, ctypes.byref(self.context))
        return digest.raw.hex()


def _load() -> Any:
    """The library in which hashlib's own functions are; AttributeError and others where there is none."""
    library = ctypes.CDLL(sys.modules["_hashlib"].__file__)
    library.SHA256_Init.argtypes = (ctypes.c_void_p,)
    library.SHA256_Update.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
    library.SHA256_Final.argtypes = (ctypes.c_char_p, ctypes.c_void_p)
    return library


def _computes_right() -> bool:
    """Whether a checksum in two parts, the state carried over as text, is that of hashlib."""
    text = bytes(range(256)) * 9
    first = Resumable256()
    first.update(text[: 17 * BLOCK])
    second = Resumable256(17 * BLOCK, first.state())
    second.update(text[17 * BLOCK :])
    return second.hexdigest() == hashlib.sha256(text).hexdigest()


def _found() -> Any:
    """The library, or None."""
    try:
        return _load()
    except (KeyError, OSError, AttributeError, TypeError):
        return None


_library = _found()
RESUMES = _library is not None and _computes_right()
"""Whether `Resumable256` works here."""
