"""A whole bot on real processes, under events, while Redis goes and comes back and a pod stands still.

What consumers heard is weighed against the stand-in's book; the product cannot see the numbers in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from app.local.discord import checker
from app.local.shards.stage import BotStage
from tests.support.waiting import last, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARDS, PODS, TTL_S, PER_S = 8, 3, 3.0, 40.0
SCANS_S = 4.0
KEEPS_ITS_DATA = {"appendonly": "yes", "appendfsync": "always", "save": ""}
FORGETS = {"appendonly": "no", "save": ""}


@pytest.fixture
def options(request: pytest.FixtureRequest) -> dict[str, str]:
    """Of the server; a test's own by `indirect`."""
    return getattr(request, "param", KEEPS_ITS_DATA)


@pytest.fixture
def stage(options: dict[str, str]) -> Iterator[BotStage]:
    """Three pods that hold eight shards, under events."""
    with BotStage(shards=SHARDS, guilds=64, ttl_s=TTL_S, server=options) as made:
        made.start(PODS)
        made.wait_settled(SHARDS)
        made.discord.load(PER_S)
        wait_until(lambda: made.heard_count() > PER_S, 30.0, what=made.last_words)
        yield made


def identifies(stage: BotStage) -> int:
    return sum(entry.kind == "identify" for entry in stage.entries())


def whole_again(stage: BotStage, pods: int = PODS) -> None:
    """Each shard is served, by so many pods."""
    wait_until(
        lambda: stage.settled(SHARDS) and len(stage.served().ready) == pods, 60.0, what=stage.last_words, every_s=0.2
    )


@pytest.mark.timeout(300)
def test_redis_is_stopped_for_a_minute(stage: BotStage) -> None:
    """Every connection stays, nothing is identified, and all that was heard meanwhile is handed on afterwards."""
    from_s = stage.discord.now_s()
    stage.server.stop()
    last(60.0)
    stage.server.start()
    back_s = stage.discord.now_s()
    whole_again(stage)
    assert stage.discord.now_s() - back_s < TTL_S + SCANS_S + 10.0
    ends = [entry for entry in stage.entries(from_s) if entry.kind in ("closed", "shut", "over", "connect")]
    assert [entry for entry in ends if entry.at_s < back_s] == []
    stage.hush()
    verdict = stage.verdict()
    assert (verdict.lost, verdict.doubled, verdict.disordered) == ([], [], []), verdict.broken
    assert identifies(stage) == SHARDS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", [FORGETS], indirect=True)
def test_redis_comes_back_empty(stage: BotStage) -> None:
    """What is lost was in Redis, and is lost with it; connections stay, and nobody identifies."""
    from_s = stage.discord.now_s()
    stage.server.kill()
    stage.server.start()
    whole_again(stage)
    last(3.0)
    stage.hush()
    verdict = stage.verdict()
    assert [event for event in verdict.lost if not from_s - 1.0 < event.at_s < from_s + 0.5] == []
    assert (verdict.doubled, verdict.disordered) == ([], []), verdict.broken
    assert [entry for entry in stage.entries(from_s) if entry.kind in ("identify", "over")] == []


@pytest.mark.timeout(300)
def test_a_pod_stands_still_and_wakes_up(stage: BotStage) -> None:
    """Others resume its shards meanwhile. What it had heard it hands on no more, and it gives its connections up."""
    pod = stage.pods["pod-1"]
    shards, from_s = stage.held_by("pod-1"), stage.discord.now_s()
    pod.pause()
    wait_until(lambda: stage.settled(SHARDS) and not stage.held_by("pod-1"), 60.0, what=stage.last_words)
    last(10.0)
    pod.resume()
    whole_again(stage)  # it gets some of them back, by hand-over
    stage.hush()
    verdict = stage.verdict()
    assert (verdict.lost, verdict.doubled, verdict.disordered) == ([], [], []), verdict.broken
    assert identifies(stage) == SHARDS
    resumed = {entry.shard for entry in stage.entries(from_s) if entry.kind == "resumed"}
    assert shards <= resumed
    gaps = checker.gaps(checker.spells(stage.entries(), stage.discord.now_s()))
    assert max(hole.length_s for hole in gaps) < TTL_S + 2 + 1
