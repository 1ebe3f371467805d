"""The application's own workers hold shards: told of them by Discord's stand-in, taken over and handed over."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import pytest
from celery import Celery

from app.local.discord.book import mark
from app.local.discord.bot import Bot as DiscordBot
from app.local.discord.remote import start as start_discord
from app.local.discord.rest import RestStandIn
from app.shards.commands import Reached
from tasks.shards.keys import Keys
from tasks.shards.operations import Numbers, Operations
from tests.shards.plain import INTENTS
from tests.support.probed import Probed
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from app.local.discord.remote import Remote
    from app.local.guard import Guard
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
    return of_the_bot(discord.url) | {"SHARD_CONNECTIONS": connections}


def connected(remote: Remote) -> dict[str, Any]:
    """Of a worker that connects them to the stand-in's gateway."""
    return of_the_bot(remote.api_url) | {"DISCORD_INTENTS": str(INTENTS)}


def of_the_bot(api_url: str) -> dict[str, Any]:
    """What both need."""
    return {"DISCORD_TOKEN": TOKEN, "DISCORD_BOT_ID": BOT, "DISCORD_API_URL": api_url, "SHARD_TTL": str(TTL_S)}


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


def test_what_happens_to_the_shards_is_in_the_metrics(workers: Workers, discord: RestStandIn) -> None:
    pods = [Probed.start(workers, name, pool="threads", **settings(discord)) for name in ("a", "b")]
    first, second = pods

    def total(name: str, **labels: str) -> float:
        return sum(pod.metric(name, **labels) for pod in pods)

    wait_until(lambda: total("headroom_shards", state="ready") == 8, 60.0, what=workers.logs)
    wait_until(lambda: set(serving(workers)) == {"a", "b"}, 60.0, what=workers.logs)
    wait_until(lambda: total("headroom_bot_target", role="active") == 8, 20.0, what="the doorkeeper to tell the target")
    assert total("headroom_bot_target", role="pending") == 0
    assert total("headroom_bot_pods") == 2
    assert total("headroom_bot_identifies_left") == discord.bot.total
    assert total("headroom_shard_lease") == 2
    assert total("headroom_shard_target_changes_total", change="proposed") == 1
    assert total("headroom_shard_target_changes_total", change="active") == 1
    assert total("headroom_shard_votes_total") >= 2  # those that were filed under the guard are counted by a SYNC
    assert [pod.metric("headroom_shard_rounds_total", why="start", answer="told") for pod in pods] == [1, 1]
    assert total("headroom_identify_answers_total", answer="granted") >= 8
    assert total("headroom_identify_wait_seconds_count") == total("headroom_identify_answers_total", answer="granted")
    moved = total("headroom_shards_released_total", how="hand over")  # a slow rebalance may be under way
    assert total("headroom_shards_claimed_total") - moved == 8

    held = first.metric("headroom_shards")
    assert held > 0
    first.process.ask_to_end()
    wait_until(lambda: set(serving(workers)) == {"b"}, 15.0, what=workers.logs)
    assert first.process.wait(30) == 0
    wait_until(lambda: second.metric("headroom_shards", state="ready") == 8, what="the metrics to follow")
    assert second.metric("headroom_shards_claimed_total") == 8 + second.metric("headroom_shards_released_total")
    assert second.metric("headroom_shard_connect_seconds_count") == second.metric("headroom_shards_claimed_total")


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_workers_connect_to_discord_and_resume_what_a_killed_and_a_drained_one_held(
    workers: Workers, guard: Guard, tmp_path: Path, pool: str
) -> None:
    """Events are on their way all the time: none is lost, none comes twice, and no identify is spent."""
    remote = start_discord(guard, tmp_path, shards=8, concurrency=16, guilds=16, token=TOKEN)
    told: dict[str, Any] = {**connected(remote), "SHARD_EVENTS": "GUILD_CREATE=-,*=shard-events"}
    elsewhere = ("-Q", "task_queue")  # nobody works on the events, so that they can be read
    pods = workers.start(3, names=["a", "b", "c"], pool=pool, arguments=elsewhere, **told)
    wait_until(lambda: set(serving(workers)) == {"a", "b", "c"}, 60.0, what=workers.logs)
    remote.load(100.0)
    wait_until(lambda: remote.look()["said"] > 100)
    pods[0].kill()
    wait_until(lambda: set(serving(workers)) == {"b", "c"}, 3 * TTL_S + 10.0, what=workers.logs)
    pods[1].ask_to_end()
    wait_until(lambda: set(serving(workers)) == {"c"}, 15.0, what=workers.logs)
    remote.load(0)
    expected = Counter(event.mark for event in remote.told() if event.heard)

    def came() -> Counter[str]:
        raw = cast("list[bytes]", workers.client.lrange("shard-events", 0, -1))
        calls = [json.loads(base64.b64decode(json.loads(each)["body"])) for each in raw]
        return Counter(mark(*call[0][:2]) for call in calls)

    wait_until(lambda: came() == expected, 20.0, what=lambda: f"{len(expected - came())} lost, {came() - expected}")
    entries = remote.entries()
    assert sum(entry.kind == "identify" for entry in entries) == 8
    assert not [entry for entry in entries if entry.kind == "over"], "no session ended"
    assert TOKEN not in workers.logs()


def test_no_child_keeps_a_connection_of_a_worker_that_was_killed(
    workers: Workers, guard: Guard, tmp_path: Path
) -> None:
    """discordjs/discord.js#4151: the children outlive their parent. These were forked after its shards connected."""
    remote = start_discord(guard, tmp_path, shards=4, concurrency=16, guilds=8, token=TOKEN)
    (pod,) = workers.start(1, concurrency=2, **connected(remote), WORKER_MAX_TASKS="1")
    wait_until(lambda: serving(workers), 60.0, what=workers.logs)
    with Celery("producer", broker=workers.client.url, set_as_current=False) as producer:
        for seconds in (0, 0, 0, 0, 20):
            producer.send_task("tasks.jobs.loads.sleep", (seconds,), queue="task_queue", ignore_result=True)
    wait_until(lambda: len(workers.records()) == 9, 20.0, what=workers.logs)
    os.kill(pod.pid, signal.SIGKILL)
    wait_until(lambda: remote.look()["counts"].get("closed") == 4, 5.0, what=lambda: str(remote.look()))


def test_a_bot_without_connections_says_so(workers: Workers, discord: RestStandIn) -> None:
    (pod,) = workers.start(1, pool="solo", **settings(discord, "none"))
    wait_until(lambda: "SHARD_CONNECTIONS=none" in pod.read_log(), 10.0, what=pod.read_log)
    assert look(workers).view.members == ()
