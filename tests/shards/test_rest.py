"""`GET /gateway/bot` over a real connection, against a Discord that is as strict as the real one."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import traceback
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from app.local.discord.bot import Bot
from app.local.discord.rest import RestStandIn, Scripted
from app.local.servers import free_port
from tasks.shards.gateway_bot import GarbledError, GatewayBot, Later, Never, Refused, judge, read, wait
from tasks.shards.rest import DiscordAway, DiscordError, Rest, TokenRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "MTIz.secret-Of_the.bot"  # noqa: S105 - of no bot
GOOD = {
    "url": "wss://gateway.invalid",
    "shards": 9,
    "session_start_limit": {"total": 1000, "remaining": 999, "reset_after": 14400000, "max_concurrency": 1},
}
LIMIT = GOOD["session_start_limit"]


@pytest.fixture
def discord() -> Iterator[RestStandIn]:
    """A Discord that knows one bot, which shall have 9 shards."""
    with RestStandIn(Bot(TOKEN, shards=9)) as server:
        yield server


def ask(url: str, token: str = TOKEN, *, times: int = 1, **numbers: float) -> list[GatewayBot | DiscordError]:
    """What the calls of one client gave, errors included."""

    async def calls() -> list[GatewayBot | DiscordError]:
        answers: list[GatewayBot | DiscordError] = []
        options: dict[str, Any] = {"request_s": 1.0, "within_s": 4.0, "first_wait_s": 0.02, **numbers}
        async with Rest(url, token, **options) as rest:
            for _ in range(times):
                try:
                    answers.append(await rest.gateway_bot())
                except DiscordError as error:
                    answers.append(error)
        return answers

    return asyncio.run(calls())


def failed(answer: GatewayBot | DiscordError, kind: type[DiscordError] = DiscordAway) -> str:
    """The one line of an error, which shows the token nowhere."""
    assert isinstance(answer, DiscordError)
    assert type(answer) is kind
    assert answer.__context__ is None
    text = "".join(traceback.format_exception(answer)) + repr(answer)
    assert TOKEN not in text
    assert "\n" not in str(answer)
    return str(answer)


# ---------------------------------------------------------------- the way there


def test_an_answer_is_what_discord_says(discord: RestStandIn) -> None:
    discord.bot.identified()
    answer = ask(discord.url)[0]
    assert isinstance(answer, GatewayBot)
    assert answer == GatewayBot("wss://gateway.invalid", 9, 1000, 999, answer.reset_after_ms, 1)
    assert 86_300_000 < answer.reset_after_ms <= 86_400_000
    assert discord.statuses == {200: 1}


@pytest.mark.parametrize(
    "trouble",
    [
        Scripted(500),
        Scripted(503, "<html>"),
        Scripted(reset=True),
        Scripted(after_s=5.0),
        Scripted(200, "no JSON"),
        Scripted(200, b"\xff\xfe"),
        Scripted(200, "[" * 60_000),
        Scripted(200, "[]"),
        Scripted(200, "x" * 200_000),
        Scripted(200, json.dumps({**GOOD, "shards": 0})),
        Scripted(429, json.dumps({"retry_after": 0.05, "global": True}), {"Retry-After": "0.05"}),
    ],
    ids=lambda trouble: f"{trouble.status}-{str(trouble.body)[:12]}-{trouble.after_s}",
)
def test_what_passes_is_tried_again(discord: RestStandIn, trouble: Scripted) -> None:
    discord.script.extend([trouble, trouble])
    answer = ask(discord.url, request_s=0.3)[0]
    assert isinstance(answer, GatewayBot)
    assert answer.shards == 9
    assert discord.impatient == 0


def test_a_call_ends_in_its_time_and_says_why(discord: RestStandIn) -> None:
    discord.script.extend([Scripted(502)] * 1000)
    assert failed(ask(discord.url, within_s=0.3)[0]) == "Discord cannot be used: it answered 502"
    few = discord.requests
    assert 2 <= few <= 12  # 0.02, 0.04, 0.08, ... halved by chance


def test_a_wait_that_discord_asks_for_is_kept_also_by_later_calls(discord: RestStandIn) -> None:
    discord.script.append(Scripted(429, json.dumps({"retry_after": 60, "global": True}), {"Retry-After": "60"}))
    first, second = ask(discord.url, times=2)
    assert failed(first) == "Discord cannot be used: it answered 429 for all requests: wait 60 s"
    assert "asked for a wait of 60 s more" in failed(second)
    assert discord.statuses == {429: 1}


def test_many_calls_stay_within_the_rate_limit() -> None:
    with RestStandIn(Bot(TOKEN, shards=3), limit=2, window_s=0.4) as discord:
        answers = ask(discord.url, times=6, within_s=30.0)
        assert [answer.shards if isinstance(answer, GatewayBot) else str(answer) for answer in answers] == [3] * 6
        assert discord.statuses[429] >= 1
        assert discord.impatient == 0


def test_a_wrong_token_is_told_once_and_never_tried_again(discord: RestStandIn) -> None:
    first, second = ask(discord.url, token=TOKEN[:-1] + "x", times=2)
    line = "Discord refuses the bot: it answered 401: the token in DISCORD_TOKEN is not valid"
    assert failed(first, TokenRefused) == failed(second, TokenRefused) == line
    assert discord.statuses == {401: 1}


def test_a_token_that_was_reset_ends_it_as_well(discord: RestStandIn) -> None:
    discord.bot.remaining = 1
    assert discord.bot.identified()
    assert not discord.bot.identified()
    failed(ask(discord.url)[0], TokenRefused)


@pytest.mark.parametrize("status", [302, 403, 404])
def test_what_would_not_change_is_not_tried_again_in_one_call(discord: RestStandIn, status: int) -> None:
    discord.script.append(Scripted(status, headers={"Location": f"{discord.url}/gateway/bot"}))
    assert failed(ask(discord.url)[0]) == f"Discord cannot be used: it answered {status}"
    assert discord.requests == 1


def test_nobody_there_and_somebody_silent() -> None:
    refused = failed(ask(f"http://127.0.0.1:{free_port()}/api/v10", within_s=0.2)[0])
    assert refused == "Discord cannot be used: no connection (Connection refused)"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = failed(ask(f"http://127.0.0.1:{silent.getsockname()[1]}", within_s=0.4, request_s=0.15)[0])
    assert said.startswith("Discord cannot be used: no answer in 0.")


def test_the_token_is_in_no_log_and_no_representation(discord: RestStandIn, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    discord.script.extend([Scripted(500), Scripted(reset=True), Scripted(after_s=3.0), Scripted(429)])
    ask(discord.url, request_s=0.2)
    rest = Rest(discord.url, TOKEN)
    assert TOKEN not in caplog.text + repr(rest) + str(rest)


def test_a_token_with_a_line_end_is_not_sent_and_not_shown(discord: RestStandIn) -> None:
    answer = ask(discord.url, token=TOKEN + "\nX: y", within_s=0.1)[0]
    failed(answer)
    assert discord.requests == 0


# ---------------------------------------------------------------- what an answer means


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"url": None}, "url"),
        ({"url": "https://x"}, "url"),
        ({"url": "wss://a b"}, "url"),
        ({"shards": None}, "shards is missing"),
        ({"shards": True}, "shards is missing"),
        ({"shards": 2.0}, "shards is missing"),
        ({"shards": "9"}, "shards is missing"),
        ({"shards": 0}, "shards is not between"),
        ({"shards": -4}, "shards is not between"),
        ({"shards": 10**30}, "shards is not between"),
        ({"session_start_limit": None}, "session_start_limit"),
        ({"session_start_limit": []}, "session_start_limit"),
        *[
            ({"session_start_limit": {**LIMIT, name: value}}, name)  # type: ignore[dict-item]
            for name, value in [
                ("total", 0), ("total", None), ("remaining", -1), ("remaining", 1001), ("remaining", "9"),
                ("reset_after", -1), ("reset_after", 10**12), ("reset_after", None),
                ("max_concurrency", 0), ("max_concurrency", 10**6), ("max_concurrency", False),
            ]
        ],
    ],
)  # fmt: skip
def test_a_field_that_is_missing_wrong_or_absurd_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(GarbledError, match=said):
        read(json.dumps({**GOOD, **change}).encode())


def test_further_fields_do_not_matter() -> None:
    assert read(json.dumps({**GOOD, "new": {}}).encode()) == GatewayBot(
        "wss://gateway.invalid", 9, 1000, 999, 14400000, 1
    )


@pytest.mark.parametrize(
    ("header", "body", "expected"),
    [
        ("3", b"{}", (3.0, False)),
        (None, b'{"retry_after": 1.5, "global": true}', (1.5, True)),
        ("1", b'{"retry_after": 0.3}', (1.0, False)),
        ("soon", b"<html>", (5.0, False)),
        ("-1", b'{"retry_after": NaN}', (5.0, False)),
        ("1e400", b'{"retry_after": true}', (5.0, False)),
        (None, b'{"retry_after": 1e300}', (86_400.0, False)),
    ],
)
def test_the_wait_of_a_429(header: str | None, body: bytes, expected: tuple[float, bool]) -> None:
    assert wait(header, body) == expected


def test_each_status_has_a_verdict() -> None:
    kinds = {status: type(judge(status, None, b"")) for status in (200, 301, 400, 401, 403, 404, 429, 500, 503, 599)}
    assert kinds == {
        200: Later, 301: Refused, 400: Refused, 401: Never, 403: Refused, 404: Refused,
        429: Later, 500: Later, 503: Later, 599: Later,
    }  # fmt: skip


# ---------------------------------------------------------------- the stand-in is strict


def raw(url: str, method: str = "GET", **headers: str) -> int:
    """The status of a request by another client."""

    async def request() -> int:
        async with aiohttp.ClientSession() as session, session.request(method, url, headers=headers) as answer:
            return answer.status

    return asyncio.run(request())


def test_the_stand_in_refuses_what_discord_refuses(discord: RestStandIn) -> None:
    bot = {"Authorization": f"Bot {TOKEN}", "User-Agent": "DiscordBot (x, 1)"}
    good = f"{discord.url}/gateway/bot"
    assert raw(good, **bot) == 200
    assert raw(good, **{**bot, "Authorization": TOKEN}) == 401
    assert raw(good, **{**bot, "Authorization": f"Bearer {TOKEN}"}) == 401
    assert raw(good, **{**bot, "User-Agent": "curl"}) == 403
    assert raw(good, "POST", **bot) == 405
    assert raw(f"{discord.url}/gateway", **bot) == 404


def test_the_stand_in_keeps_the_days_book() -> None:
    now = [0.0]
    bot = Bot(total=2, concurrency=16, day_s=100.0, clock=lambda: now[0])
    assert bot.session_start_limit() == {"total": 2, "remaining": 2, "reset_after": 0, "max_concurrency": 16}
    assert bot.identified()
    now[0] = 40.0
    assert bot.session_start_limit() == {"total": 2, "remaining": 1, "reset_after": 60_000, "max_concurrency": 16}
    now[0] = 100.0
    assert bot.session_start_limit()["remaining"] == 2
    assert [bot.identified() for _ in range(3)] == [True, True, False]
    assert bot.token_reset
    assert not bot.knows(f"Bot {bot.token}")


def test_a_look_up_of_a_name_that_takes_for_ever_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    found: list[threading.Thread] = []

    def look_up(*_: object, **__: object) -> list[object]:
        found.append(threading.current_thread())
        over.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    (answer,) = ask("http://discord.invalid/api", request_s=0.2, within_s=0.3)
    assert "no answer in" in failed(answer)
    assert found
    assert all(thread.is_alive() and thread.daemon for thread in found), "neither the call nor the loop's end waits"
    over.set()
    for thread in found:
        thread.join(10)
