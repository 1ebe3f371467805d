"""Plays each row of docs/reference/discord.md: what follows, and whether a person sees what the page says."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, get_args

import pytest

from app.local.processes import ROOT
from app.shards.looking import figures, lines
from tasks.shards.gateway.payloads import CLOSES, after_close
from tasks.shards.gateway.plan import How
from tests.agreement.cases import CASES, ON_PAGE, SHOWN, Case, filled, tables
from tests.shards.holding import World, play
from tests.shards.listening import QUICK

if TYPE_CHECKING:
    from tests.support.servers import Client

PLAYED = [(case, code) for case in CASES for code in (case.codes + case.unnamed or (0,))]


@pytest.mark.parametrize(("case", "code"), PLAYED, ids=[f"{case.play.__name__}-{code}" for case, code in PLAYED])
def test_what_follows_and_what_is_seen(valkey: Client, case: Case, code: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tasks.shards")
    shown: list[str] = []

    async def scene(world: World) -> None:
        caplog.clear()
        looked = await case.play(world, code)
        shown.extend(lines(figures("1", looked or world.look())))

    play(valkey, scene, "a", "b", shards=2)
    told = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    for text in case.sees:
        looked_in = shown if text.startswith(SHOWN) else told
        wanted = filled(text, QUICK, (code,)).removeprefix(f"{SHOWN} ")
        pattern = re.compile(".*".join(map(re.escape, wanted.split("…"))))
        assert any(pattern.fullmatch(line) for line in looked_in), (wanted, looked_in)


def test_the_page_shows_the_cases() -> None:
    assert ON_PAGE.read() == tables(), "write it anew: python -m tests.agreement.cases"


def test_each_close_code_and_each_way_in_which_a_socket_ends_is_a_case() -> None:
    told = [code for case in CASES for code in case.codes]
    assert set(told) == set(CLOSES)
    assert {code for case in CASES for code in case.unnamed} & set(CLOSES) == set()
    ways = set(get_args(How)) - {"not ours"}  # which is another pod's doing
    assert {case.how for case in CASES if case.how} == ways


def test_the_how_to_names_each_code_that_stops_a_shard() -> None:
    page = (ROOT / "docs" / "how-to" / "discord-shards.md").read_text(encoding="utf-8")
    table = page.partition("## When Discord closes a shard for good")[2].partition("\n## ")[0]
    named = {int(code) for row in re.findall(r"^\| ([0-9, ]+) \|", table, re.MULTILINE) for code in row.split(",")}
    assert named == {code for code in CLOSES if after_close(code) in ("fatal", "urgent")}
