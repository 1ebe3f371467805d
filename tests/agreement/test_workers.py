"""The application's own workers hold shards: told of them by Discord's stand-in, taken over and handed over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from app.local.discord.bot import Bot as DiscordBot
from app.local.discord.rest import RestStandIn
from app.shards.commands import Reached
from tasks.shards.keys import Keys
from tasks.shards.operations import Numbers, Operations
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.shards.answers import Looked
    from tests.support.workers import Workers

BOT, TOKEN = "4711", "a.secret-token"
TTL_S = 3


@pytest.fixture
def discord() -> Iterator[RestStandIn]:
    """It recommends eight shards."""
    with RestStandIn(DiscordBot(TOKEN, shards=8, concurrency=16)) as standing:
        yield standing


def settings(discord: RestStandIn, connections: str = "simulated") -> dict[str, Any]:
    """Of a worker that holds shards."""
    return {
        "DISCORD_TOKEN": TOKEN,
        "DISCORD_BOT_ID": BOT,
        "DISCORD_API_URL": discord.url,
        "SHARD_TTL": str(TTL_S),
        "SHARD_CONNECTIONS": connections,
    }


def look(workers: Workers) -> Looked:
    """The cluster."""
    operations = Operations(Keys(BOT), Numbers(ttl_ms=TTL_S * 1000))
    return Reached(workers.client, operations).look()


def serving(workers: Workers) -> dict[str, int]:
    """Pod -> shards of the active target that are ready there; only when all of them are."""
    looked = look(workers)
    active, loads = looked.head.active, dict[str, int]()
    for (version, _), bind in looked.view.binds.items():
        if active and version == active.version and bind.state == "ready":
            pod = bind.member.partition("#")[0]
            loads[pod] = loads.get(pod, 0) + 1
    return loads if active and sum(loads.values()) == active.total else {}


def test_workers_hold_take_over_and_hand_over(workers: Workers, discord: RestStandIn) -> None:
    pods = workers.start(3, names=["a", "b", "c"], pool="threads", **settings(discord))
    wait_until(lambda: set(serving(workers)) == {"a", "b", "c"}, 60.0, what=workers.logs)
    pods[0].kill()
    wait_until(lambda: set(serving(workers)) == {"b", "c"}, 3 * TTL_S + 10.0, what=workers.logs)
    pods[1].ask_to_end()
    wait_until(lambda: set(serving(workers)) == {"c"}, 15.0, what=workers.logs)
    wait_until(lambda: not pods[1].running, 30.0, what=workers.logs)
    assert pods[1].exit_code == 0
    assert len(look(workers).view.members) == 1
    assert TOKEN not in workers.logs()


def test_a_bot_without_connections_says_so(workers: Workers, discord: RestStandIn) -> None:
    (pod,) = workers.start(1, pool="solo", **settings(discord, "none"))
    wait_until(lambda: "SHARD_CONNECTIONS=simulated" in pod.read_log(), 10.0, what=pod.read_log)
    assert look(workers).view.members == ()
