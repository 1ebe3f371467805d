"""Shards of a bot live on the rights that the page says, and on no fewer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import redis
from celery import Celery

import throttle
from app.local.discord.bot import Bot as DiscordBot
from app.local.discord.rest import RestStandIn
from app.local.processes import ROOT
from app.shards import rights
from app.shards.messages import MessageWriter
from app.shards.routing import parse_routes
from tasks.shards.gateway.session import Event
from tasks.shards.keys import Keys
from tests.agreement.test_workers import BOT, TOKEN, serving, settings
from tests.support.waiting import wait_until
from tests.trouble.test_rights import PAGE, PASSWORD, fits, make_user, refused, rules_of
from throttle.keys import Keys as FleetKeys
from throttle.rights import OURSELVES, SCRIPTED
from throttle.scripts import Operations, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.shards.delivery.parcels import Written
    from tests.support.servers import Client
    from tests.support.workers import Workers

EXAMPLE = "tasks.jobs.gateway_event.gateway_event"


def rules_of_shards() -> list[str]:
    """What the page says that workers with shards need beyond others."""
    found = re.search(
        r"^- Workers that hold a Discord bot's shards need (.+?) too;", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return [rule for part in re.findall(r"`([^`]+)`", found[1]) for rule in part.replace("<bot>", BOT).split()]


def all_rules() -> list[str]:
    """Of a worker with shards, and of what records its tasks for the test."""
    return [*rules_of("worker"), *rules_of_shards(), "~headroom-local:*", "+expire"]


def push(client: Client, written: Written) -> None:
    """As DELIVER does, of a shard of the bot."""
    if written.starter:
        client.rpush(f"{{cluster:{BOT}}}:line:7", written.message)
        client.hset(f"{{cluster:{BOT}}}:turn:7", "owner", written.owner)
    client.lpush(written.queue, written.starter or written.message)


def given(discord: RestStandIn, user: str) -> dict[str, Any]:
    """Settings of a worker with shards that is this user, and takes from the page's queues."""
    return settings(discord) | {"REDIS_URL": user, "TASK_QUEUE": "celery"}


@pytest.fixture
def user(valkey: Client) -> Iterator[str]:
    """Its address; the user is gone afterwards."""
    make_user(valkey, "worker", all_rules())
    yield valkey.url.replace("://", f"://worker:{PASSWORD}@")
    valkey.execute_command("ACL", "DELUSER", "worker")


@pytest.fixture
def discord() -> Iterator[RestStandIn]:
    """It recommends two shards."""
    with RestStandIn(DiscordBot(TOKEN, shards=2, concurrency=16)) as standing:
        yield standing


def test_shards_live_on_the_rights_of_the_page(
    workers: Workers, discord: RestStandIn, user: str, valkey: Client
) -> None:
    """Votes, claims, a pod that dies and one that leaves, the example's work on an event, alone and in its line.

    The server's own log of what it refused stays empty.
    """
    valkey.execute_command("ACL", "LOG", "RESET")
    pods = workers.start(2, names=["a", "b"], pool="threads", ready=False, **given(discord, user))
    wait_until(lambda: set(serving(workers)) == {"a", "b"}, 60.0, what=workers.logs)
    pods[0].kill()
    wait_until(lambda: set(serving(workers)) == {"b"}, 30.0, what=workers.logs)
    with Celery("producer", broker=valkey.url, set_as_current=False) as app:
        throttle.install(app)
        for ordered in ("", "*"):
            writer = MessageWriter(app, BOT, parse_routes("", ordered, "celery"), EXAMPLE)
            push(
                valkey,
                writer.write(Event("s", 2, "MESSAGE_CREATE", {"id": f"1{ordered}", "guild_id": "7"}, 9), ordered),
            )
    wait_until(lambda: valkey.hget("{headroom:default}:bot:messages", "7") == b"2", 20.0, what=workers.logs)
    pods[1].ask_to_end()
    wait_until(lambda: not pods[1].running, 30.0, what=workers.logs)
    told: list[Any] = valkey.acl_log()
    assert [refused(entry) for entry in told if entry["object"] != "client|setinfo"] == []


def test_each_right_of_the_page_is_missed_by_its_name(valkey: Client, user: str) -> None:
    looked_for = [rule for rule in rules_of_shards() if not rule.startswith("&/")]
    for rule in looked_for:
        make_user(valkey, "worker", [other for other in all_rules() if other != rule])
        with redis.Redis.from_url(user) as client:
            lacks = rights.missing(Operations(client, FleetKeys(), Rule(0.8, 3000, 5)), Keys(BOT))
        assert lacks, rule
        assert all(fits(found, rule) for found in lacks), (rule, lacks)


def test_a_worker_that_lacks_a_right_says_so_in_one_line(
    workers: Workers, discord: RestStandIn, user: str, valkey: Client
) -> None:
    """Also of a queue that it only fills."""
    make_user(valkey, "worker", [rule for rule in all_rules() if rule not in ("+hgetall", f"~{{cluster:{BOT}}}:*")])
    routed: dict[str, Any] = given(discord, user) | {"SHARD_EVENTS": "MESSAGE_CREATE=talk,PRESENCE_UPDATE=-"}
    (pod,) = workers.start(1, pool="solo", ready=False, arguments=["--queues", "celery,critical"], **routed)
    wait_until(lambda: not pod.running, 30.0, what=pod.read_log)
    last = [line for line in pod.read_log().splitlines() if line.strip()][-1]
    assert last.startswith("headroom: Redis at redis://worker:**@")
    assert f"missing: +hgetall ~talk ~{{cluster:{BOT}}}:probe" in last
    assert "Traceback" not in pod.read_log()


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("SHARD_CALLBACK", "mybot.nowhere:handle", "No module named 'mybot'; allowed is module:function"),
        ("SHARD_LIVENESS", "kubernetes", "allowed in a pod with automountServiceAccountToken: true"),
    ],
)
def test_what_a_worker_cannot_have_is_said_in_one_line(
    workers: Workers, discord: RestStandIn, variable: str, value: str, why: str
) -> None:
    wrong: dict[str, Any] = settings(discord, "discord") | {variable: value}
    (pod,) = workers.start(1, pool="solo", ready=False, **wrong)
    wait_until(lambda: not pod.running, 30.0, what=pod.read_log)
    assert pod.exit_code == 1
    last = [line for line in pod.read_log().splitlines() if line.strip()][-1]
    assert last.startswith(f"headroom: {variable}={value!r}: ")
    assert last.endswith(why)
    assert "Traceback" not in pod.read_log()


def test_the_look_tries_each_command_of_each_script() -> None:
    lua = ROOT / "tasks" / "shards" / "lua"
    used = {name for path in lua.glob("*.lua") for name in re.findall(r"call\('([A-Z]+)'", path.read_text())}
    granted = {rule[1:].upper() for rule in all_rules() if rule[0] == "+"}
    assert used <= granted
    assert used <= {words[0] for words in (*rights.SCRIPTED, *SCRIPTED)} | set(OURSELVES)
