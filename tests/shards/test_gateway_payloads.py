"""Payloads of the gateway: what is read and refused, what is sent, and the three ways to inflate."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from backports import zstd

from tasks.shards.gateway import payloads
from tasks.shards.gateway.payloads import (
    Garbled,
    Inflater,
    Op,
    Payload,
    address,
    beat_interval_s,
    decode,
    encode,
    guild_of,
    identify,
    inflater,
    offered,
    ready,
    resume,
)
from tasks.shards.gateway.session import Session

if TYPE_CHECKING:
    from tasks.shards.gateway.payloads import Compression

TOKEN = "secret-token"  # noqa: S105 - of no bot


def test_a_dispatch_is_read_as_it_came() -> None:
    raw = '{"op":0,"s":7,"t":"TYPING_START","d":{"guild_id":"5"}}'
    assert decode(raw) == Payload(0, {"guild_id": "5"}, 7, "TYPING_START", len(raw))
    assert decode(b'{"op":11,"d":null,"s":null,"t":null}') == Payload(11, None, 0, "", 36)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{",
        b'"x"',
        b"\xff\xfe",
        b'{"op":"0"}',
        b'{"op":true}',
        b'{"op":0,"s":"7","t":"X","d":{}}',
        b'{"op":0,"t":"X","d":{}}',
        b'{"op":0,"s":1,"d":{}}',
        b'{"op":0,"s":-1,"t":"X","d":{}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_payload_is_refused_and_not_repeated(raw: bytes) -> None:
    with pytest.raises(Garbled) as caught:
        decode(raw)
    assert len(str(caught.value)) < 60
    assert caught.value.__cause__ is None


def test_ready_and_hello_are_read_or_refused() -> None:
    assert beat_interval_s({"heartbeat_interval": 41250}) == 41.25
    nothing: list[Any] = [None, {}, {"session_id": "s"}]
    for bad in (*nothing, {"heartbeat_interval": 0}, {"heartbeat_interval": "x"}, {"heartbeat_interval": float("nan")}):
        with pytest.raises(Garbled):
            beat_interval_s(bad)
    data = {"session_id": "s", "resume_gateway_url": "wss://r", "guilds": [{"id": "5"}, {"id": 6}]}
    assert ready(data) == ("s", "wss://r", {5, 6})
    texts: list[Any] = ["", "a b", "\n", None]
    wrong: list[Any] = [{**data, name: text} for name in ("session_id", "resume_gateway_url") for text in texts]
    wrong.append({**data, "guilds": [{}]})
    for bad in (*wrong, *nothing):
        with pytest.raises(Garbled):
            ready(bad)


def test_only_guilds_that_come_or_are_unavailable_are_told_of() -> None:
    create = decode('{"op":0,"s":2,"t":"GUILD_CREATE","d":{"id":"5"}}')
    assert guild_of(create) == 5
    assert guild_of(create._replace(name="GUILD_DELETE")) == 5
    assert guild_of(create._replace(name="GUILD_UPDATE")) == 0
    assert guild_of(create._replace(data={})) == 0


def test_what_is_sent_has_what_discord_asks_for() -> None:
    assert (
        json.loads(encode(Op.IDENTIFY, identify(TOKEN, 513, 3, 16)))["d"].items()
        >= {
            "token": TOKEN,
            "intents": 513,
            "shard": [3, 16],
        }.items()
    )
    assert resume(TOKEN, Session("s", 9, "wss://r")) == {"token": TOKEN, "session_id": "s", "seq": 9}
    with pytest.raises(ValueError, match=r"4097 bytes: allowed are 4096$"):
        encode(3, "x" * (4097 - len('{"op":3,"d":""}')))


@pytest.mark.parametrize("given", ["wss://g.invalid", "wss://g.invalid/", "wss://g.invalid/?v=6"])
def test_the_address_says_version_encoding_and_compression(given: str) -> None:
    assert address(given, "zlib") == "wss://g.invalid/?v=10&encoding=json&compress=zlib-stream"
    assert address(given, "none") == "wss://g.invalid/?v=10&encoding=json"


# ---------------------------------------------------------------- inflation

MESSAGES = [json.dumps({"op": 0, "s": n, "t": "X", "d": {"text": "é" * n * 50}}).encode() for n in range(1, 30)]


def zlib_frames(messages: list[bytes]) -> list[bytes]:
    squeeze = zlib.compressobj()
    return [squeeze.compress(each) + squeeze.flush(zlib.Z_SYNC_FLUSH) for each in messages]


def zstd_frames(messages: list[bytes]) -> list[bytes]:
    squeeze = zstd.ZstdCompressor()
    return [squeeze.compress(each, squeeze.FLUSH_BLOCK) for each in messages]


def test_each_way_gives_what_was_sent() -> None:
    assert offered() == ("zlib", "zstd", "none")
    sent: dict[Compression, list[bytes]] = {
        "none": MESSAGES,
        "zlib": zlib_frames(MESSAGES),
        "zstd": zstd_frames(MESSAGES),
    }
    for way, frames in sent.items():
        context = inflater(way)
        assert [context.feed(frame) for frame in frames] == MESSAGES


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_message_in_pieces_is_whole_when_its_last_piece_is_there(size: int) -> None:
    context = inflater("zlib")
    pieces: list[bytes] = []
    for frame in zlib_frames(MESSAGES):
        pieces += [frame[at : at + size] for at in range(0, len(frame), size)]
    assert [whole for piece in pieces if (whole := context.feed(piece)) is not None] == MESSAGES


def bomb(frames: Any) -> bytes:
    return frames([b" " * (payloads.MOST_BYTES + 1)])[0]


@pytest.mark.parametrize(
    ("context", "frame"),
    [
        (inflater("zlib"), b"no zlib at all\x00\x00\xff\xff"),
        (inflater("zlib"), bomb(zlib_frames)),
        (inflater("zstd"), b"no zstd at all"),
        (inflater("zstd"), bomb(zstd_frames)),
    ],
    ids=["zlib", "zlib bomb", "zstd", "zstd bomb"],
)
def test_what_cannot_be_inflated_or_is_too_much_is_refused(context: Inflater, frame: bytes) -> None:
    with pytest.raises(Garbled):
        context.feed(frame)


def test_a_message_that_never_ends_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MOST_BYTES", 1000)
    context = inflater("zlib")
    for _ in range(10):
        assert context.feed(b"x" * 100) is None
    with pytest.raises(Garbled):
        context.feed(b"x" * 100)


def test_an_interpreter_without_zstd_does_not_offer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "zstd", lambda: None)
    assert offered() == ("zlib", "none")
    with pytest.raises(ValueError, match="zstd: this interpreter has none; allowed is one of zlib, none"):
        inflater("zstd")
