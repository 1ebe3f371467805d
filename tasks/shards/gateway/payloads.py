"""What is said on a gateway socket: op codes, close codes and what follows from each, payloads, inflation. Pure.

Discord's rules are those of its documentation (gateway, gateway events, op codes and status codes), version 10 with
JSON. What breaks them is `Garbled`, which names what was wrong and never repeats it: a payload can hold anything.
"""

from __future__ import annotations

import importlib
import json
import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from tasks.shards.gateway.session import Session

VERSION = 10
MOST_BYTES = 64 * 1024 * 1024
"""Of one payload, inflated. A guild with all that belongs to it has a few MiB."""
MOST_SENT_BYTES = 4096
"""Of a payload that is sent: Discord closes with 4002 what is longer."""
HAND_OVER, RETIRE = 4000, 1000
"""Close codes of our own. With 1000 and 1001 Discord ends the session, with any other it waits for a RESUME."""

Compression = Literal["none", "zlib", "zstd"]
Follows = Literal["resume", "new session", "fatal", "urgent"]
"""What a close code asks for; `urgent`: there must be more shards before any connects."""


class Op(IntEnum):
    """What a payload is."""

    DISPATCH = 0
    HEARTBEAT = 1
    IDENTIFY = 2
    RESUME = 6
    RECONNECT = 7
    INVALID_SESSION = 9
    HELLO = 10
    HEARTBEAT_ACK = 11


CLOSES: dict[int, tuple[Follows, str]] = {
    4000: ("resume", "unknown error"),
    4001: ("resume", "unknown op code"),
    4002: ("resume", "payload could not be decoded"),
    4003: ("resume", "not authenticated"),
    4004: ("fatal", "the token is not accepted"),
    4005: ("resume", "already authenticated"),
    4007: ("new session", "invalid sequence"),
    4008: ("resume", "sent too fast"),
    4009: ("new session", "the session timed out"),
    4010: ("fatal", "there is no such shard in this total"),
    4011: ("urgent", "more shards are required"),
    4012: ("fatal", "this version of the gateway is over"),
    4013: ("fatal", "the intents are not valid"),
    4014: ("fatal", "the bot may not have these intents"),
}


def after_close(code: int) -> Follows:
    """What follows when Discord has closed with `code` (0: the socket was gone without one). What is new is resumed."""
    return CLOSES[code][0] if code in CLOSES else "resume"


def meaning(code: int) -> str:
    """A close code in words, for a person."""
    if not code:
        return "the connection was lost"
    return f"closed with {code}" + (f": {CLOSES[code][1]}" if code in CLOSES else "")


class Garbled(Exception):
    """What came is not what Discord sends."""


class Payload(NamedTuple):
    """One payload, as it came."""

    op: int
    data: Any
    sequence: int
    """0: it has none."""
    name: str
    raw_bytes: int


def decode(raw: str | bytes) -> Payload:
    """Read a payload. Raises `Garbled`."""
    try:
        found: Any = json.loads(raw)
    except (ValueError, RecursionError):
        raise Garbled("a payload that is no JSON") from None
    fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    op, sequence, name = fields.get("op"), fields.get("s") or 0, fields.get("t") or ""
    if type(op) is not int or type(sequence) is not int or not isinstance(name, str):
        raise Garbled("a payload without a proper op, s and t")
    data = fields.get("d")
    if op == Op.DISPATCH and not (sequence > 0 and name):
        raise Garbled("a dispatch without sequence or name")
    return Payload(op, data, sequence, name, len(raw))


def beat_interval_s(data: Any) -> float:
    """Seconds between two beats, of a HELLO's data. Raises `Garbled`."""
    try:
        interval_ms = float(data["heartbeat_interval"])
    except (KeyError, TypeError, ValueError):
        raise Garbled("a HELLO without heartbeat_interval") from None
    if not 0 < interval_ms < float("inf"):
        raise Garbled("a HELLO whose heartbeat_interval is no length of time")
    return interval_ms / 1000


class Ready(NamedTuple):
    """What READY tells of a new session."""

    session_id: str
    resume_url: str
    guilds: frozenset[int]


def ready(data: Any) -> Ready:
    """Read a READY's data. Raises `Garbled`."""
    try:
        guilds = frozenset(int(guild["id"]) for guild in data["guilds"])
        session_id, resume_url = data["session_id"], data["resume_gateway_url"]
    except (KeyError, TypeError, ValueError):
        raise Garbled("a READY without session_id, resume_gateway_url or guilds") from None
    if not all(isinstance(text, str) and text and text.split() == [text] for text in (session_id, resume_url)):
        raise Garbled("a READY whose session_id or resume_gateway_url is no text without spaces")
    return Ready(session_id, resume_url, guilds)


def guild_of(payload: Payload) -> int:
    """The guild that a GUILD_CREATE or GUILD_DELETE tells of; 0 for another event."""
    if payload.name not in ("GUILD_CREATE", "GUILD_DELETE"):
        return 0
    try:
        return int(payload.data["id"])
    except (KeyError, TypeError, ValueError):
        return 0


# ---------------------------------------------------------------- what is sent


def encode(op: int, data: Any) -> str:
    """A payload to send. Raises `ValueError` when it is longer than Discord takes."""
    text = json.dumps({"op": int(op), "d": data}, separators=(",", ":"))  # ASCII: as many bytes as characters
    if len(text) > MOST_SENT_BYTES:
        raise ValueError(f"a payload of {len(text)} bytes: allowed are {MOST_SENT_BYTES}")
    return text


def identify(token: str, intents: int, shard: int, total: int) -> dict[str, Any]:
    """Data of an IDENTIFY."""
    properties = {"os": "linux", "browser": "headroom", "device": "headroom"}
    return {"token": token, "intents": intents, "shard": [shard, total], "properties": properties}


def resume(token: str, session: Session) -> dict[str, Any]:
    """Data of a RESUME."""
    return {"token": token, "session_id": session.id, "seq": session.sequence}


def address(url: str, compression: Compression) -> str:
    """Where to connect: the gateway's address with what version, encoding and compression are wanted."""
    asked = f"v={VERSION}&encoding=json" + (f"&compress={compression}-stream" if compression != "none" else "")
    return f"{url.partition('?')[0].rstrip('/')}/?{asked}"


def may_follow(url: str, main_url: str) -> bool:
    """Whether the token may go to a resume URL: a web socket, and never without TLS when the main URL has it."""
    return url.startswith("wss://") or (url.startswith("ws://") and main_url.startswith("ws://"))


# ---------------------------------------------------------------- inflation


class Inflater(Protocol):
    """The context of one socket's compression: made anew for each socket."""

    def feed(self, raw: bytes) -> bytes | None:
        """The payload that `raw` completes; None: there is more to come. Raises `Garbled`."""
        ...


class Plain:
    """No compression."""

    def feed(self, raw: bytes) -> bytes | None:
        """As it came."""
        return raw


class ZlibStream:
    """One zlib stream for the whole socket; each payload ends with a flush."""

    FLUSH = b"\x00\x00\xff\xff"

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._inflate = zlib.decompressobj()
        self._partial = bytearray()

    def feed(self, raw: bytes) -> bytes | None:
        """See `Inflater`."""
        if len(self._partial) + len(raw) > MOST_BYTES:
            raise Garbled(f"a payload of more than {MOST_BYTES} bytes")
        if not raw.endswith(self.FLUSH):
            self._partial += raw
            if not self._partial.endswith(self.FLUSH):
                return None
            raw = b""
        if self._partial:
            raw, self._partial = bytes(self._partial) + raw, bytearray()
        try:
            payload = self._inflate.decompress(raw, MOST_BYTES)
        except zlib.error:
            raise Garbled("bytes that are no zlib-stream") from None
        if self._inflate.unconsumed_tail:
            raise Garbled(f"a payload of more than {MOST_BYTES} bytes")
        return payload


class ZstdStream:
    """One zstd frame for the whole socket, which never ends; each message is flushed."""

    def __init__(self, module: Any) -> None:
        """`module`: the interpreter's."""
        self._inflate, self._error = module.ZstdDecompressor(), module.ZstdError

    def feed(self, raw: bytes) -> bytes | None:
        """See `Inflater`."""
        try:
            payload = cast("bytes", self._inflate.decompress(raw, MOST_BYTES))
        except (self._error, EOFError):
            raise Garbled("bytes that are no zstd-stream") from None
        if not self._inflate.needs_input:
            raise Garbled(f"a payload of more than {MOST_BYTES} bytes")
        return payload


def zstd() -> Any | None:
    """The interpreter's own zstd (Python 3.14), or the package that brings it to an older one; None without both."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def offered() -> tuple[Compression, ...]:
    """What this interpreter can inflate, the most frugal first."""
    return ("zlib", "zstd", "none") if zstd() else ("zlib", "none")


def inflater(compression: Compression) -> Inflater:
    """A new context. Raises `ValueError` for what the interpreter does not have."""
    if compression == "none":
        return Plain()
    if compression == "zlib":
        return ZlibStream()
    module = zstd()
    if module is None:
        raise ValueError(f"zstd: this interpreter has none; allowed is one of {', '.join(offered())}")
    return ZstdStream(module)
