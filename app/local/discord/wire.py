"""What goes over the gateway's wire: what a client may send, what Discord closes with, and how a stream is packed.

Pure, but for the state of a `Packer`. Whatever Discord would close a connection for is a `Breach` with the code.
"""

from __future__ import annotations

import json
import zlib
from enum import IntEnum
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

LONGEST_BYTES = 4096
VERSIONS = (9, 10)


class Op(IntEnum):
    """What a payload is."""

    DISPATCH = 0
    HEARTBEAT = 1
    IDENTIFY = 2
    PRESENCE = 3
    VOICE_STATE = 4
    RESUME = 6
    RECONNECT = 7
    MEMBERS = 8
    INVALID_SESSION = 9
    HELLO = 10
    ACK = 11
    SOUNDS = 31


FROM_CLIENTS = {Op.HEARTBEAT, Op.IDENTIFY, Op.PRESENCE, Op.VOICE_STATE, Op.RESUME, Op.MEMBERS, Op.SOUNDS}


class Close(IntEnum):
    """Why Discord closes a connection."""

    INTERNAL = 1011
    UNKNOWN_ERROR = 4000
    UNKNOWN_OP = 4001
    DECODE_ERROR = 4002
    NOT_AUTHENTICATED = 4003
    AUTHENTICATION_FAILED = 4004
    ALREADY_AUTHENTICATED = 4005
    INVALID_SEQUENCE = 4007
    RATE_LIMITED = 4008
    SESSION_TIMED_OUT = 4009
    INVALID_SHARD = 4010
    SHARDING_REQUIRED = 4011
    INVALID_VERSION = 4012
    INVALID_INTENTS = 4013
    DISALLOWED_INTENTS = 4014


ENDS_SESSION = {
    Close.AUTHENTICATION_FAILED,
    Close.INVALID_SEQUENCE,
    Close.SESSION_TIMED_OUT,
    Close.INVALID_SHARD,
    Close.SHARDING_REQUIRED,
    Close.INVALID_VERSION,
    Close.INVALID_INTENTS,
    Close.DISALLOWED_INTENTS,
}
"""After one of these there is nothing to resume."""

LEAVES = (1000, 1001)
"""A client that closes with one of these has ended its session."""


class Breach(Exception):
    """A client did what Discord closes a connection for."""

    def __init__(self, code: int, why: str) -> None:
        """`code`: the close code; `why`: in one line."""
        super().__init__(why)
        self.code, self.why = code, why


class Dialect(NamedTuple):
    """How a client wants to be spoken to. A RESUME must come in the words of the session's IDENTIFY."""

    version: int
    packed: bool
    """zlib-stream."""


class Payload(NamedTuple):
    """One of a client's."""

    op: Op
    data: Any


class Identify(NamedTuple):
    """Op 2."""

    token: str
    intents: int
    shard: int
    total: int


class Resume(NamedTuple):
    """Op 6."""

    token: str
    session: str
    sequence: int


def read_address(path: str) -> Dialect:
    """The query of the address that a client connected to. Raises `Breach`."""
    asked = {name: values[-1] for name, values in parse_qs(urlsplit(path).query).items()}
    version, encoding, compress = asked.get("v", ""), asked.get("encoding", ""), asked.get("compress", "")
    if not version.isdecimal() or int(version) not in VERSIONS:
        raise Breach(Close.INVALID_VERSION, f"v={version!r}: allowed are 9 and 10")
    if encoding != "json":
        raise Breach(Close.DECODE_ERROR, f"encoding={encoding!r}: the stand-in speaks json alone")
    if compress not in ("", "zlib-stream"):
        raise Breach(Close.DECODE_ERROR, f"compress={compress!r}: the stand-in packs with zlib-stream alone")
    return Dialect(int(version), bool(compress))


def read(message: str | bytes) -> Payload:
    """What a client sent, as text or in a binary message. Raises `Breach`."""
    if len(message if isinstance(message, bytes) else message.encode()) > LONGEST_BYTES:
        raise Breach(Close.DECODE_ERROR, f"a payload of more than {LONGEST_BYTES} bytes")
    try:
        payload = json.loads(message)
    except ValueError:
        raise Breach(Close.DECODE_ERROR, "not JSON") from None
    if not isinstance(payload, dict) or "op" not in payload:
        raise Breach(Close.DECODE_ERROR, "no object with an op")
    op: Any = payload["op"]  # pyright: ignore[reportUnknownVariableType]
    if not _whole(op) or op not in FROM_CLIENTS:
        raise Breach(Close.UNKNOWN_OP, f"op {op!r} is none that a client sends")
    return Payload(Op(op), payload.get("d"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def read_identify(data: Any) -> Identify:
    """Op 2. Raises `Breach`."""
    shard: Any = data.get("shard", [0, 1]) if isinstance(data, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    shaped = (
        isinstance(data, dict)
        and isinstance(data.get("token"), str)  # pyright: ignore[reportUnknownMemberType]
        and isinstance(data.get("properties"), dict)  # pyright: ignore[reportUnknownMemberType]
        and isinstance(shard, list)
        and len(shard) == len((0, 1))  # pyright: ignore[reportUnknownArgumentType]
        and all(map(_whole, shard))  # pyright: ignore[reportUnknownArgumentType]
    )
    if not shaped:
        raise Breach(Close.DECODE_ERROR, "an IDENTIFY needs token, properties, intents, and a shard of two numbers")
    if not _whole(data.get("intents")):
        raise Breach(Close.INVALID_INTENTS, f"intents {data.get('intents')!r}: allowed is a sum of bits")
    return Identify(data["token"], data["intents"], *shard)


def read_resume(data: Any) -> Resume:
    """Op 6. Raises `Breach`."""
    if not (
        isinstance(data, dict)
        and isinstance(data.get("token"), str)  # pyright: ignore[reportUnknownMemberType]
        and isinstance(data.get("session_id"), str)  # pyright: ignore[reportUnknownMemberType]
        and _whole(data.get("seq"))  # pyright: ignore[reportUnknownMemberType]
    ):
        raise Breach(Close.DECODE_ERROR, "a RESUME needs token, session_id and seq")
    return Resume(data["token"], data["session_id"], data["seq"])  # pyright: ignore[reportUnknownArgumentType]


def read_beat(data: Any) -> int | None:
    """The last sequence that a client says it has. Raises `Breach`."""
    if data is not None and not _whole(data):
        raise Breach(Close.DECODE_ERROR, f"a heartbeat with {data!r}: allowed is a sequence or null")
    return data


def write(op: Op, data: Any = None) -> str:
    """A payload that is no event."""
    return json.dumps({"t": None, "s": None, "op": int(op), "d": data})


def write_event(name: str, sequence: int, body: str) -> str:
    """An event whose data is JSON already: one text serves all sessions."""
    return f'{{"t":"{name}","s":{sequence},"op":0,"d":{body}}}'


class Packer:
    """One connection's stream: zlib with one context, flushed after each message; or plain text."""

    def __init__(self, dialect: Dialect) -> None:
        """A context takes memory; it is made with the first message. Small windows: a machine holds many of them."""
        self._packed = dialect.packed
        self._context: Any = None

    def pack(self, text: str) -> str | bytes:
        """The next message."""
        if not self._packed:
            return text
        if self._context is None:
            self._context = zlib.compressobj(level=1, wbits=13, memLevel=5)
        return self._context.compress(text.encode()) + self._context.flush(zlib.Z_SYNC_FLUSH)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
