"""Discord's events on real workers: counted once though a pod dies, and in their order for each guild."""
# pyright: basic

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

import throttle
from app.shards.messages import MessageWriter
from app.shards.routing import parse_routes
from tasks.shards.delivery.calls import Parcel
from tasks.shards.delivery.identity import identity
from tasks.shards.gateway.session import Event
from tests.shards.delivering import Cluster, batch, guild
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.servers import Client
    from tests.support.workers import Workers

GUILDS, EACH = 6, 40
BOT = """
import contextlib, os, signal, time
import redis
from billiard.exceptions import SoftTimeLimitExceeded
from celery import shared_task
from celery.exceptions import Ignore
from throttle.errors import TemporaryError

@shared_task(bind=True, name="bot.on_event", ignore_result=True)
def on_event(self, name, data):
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    client.rpush("order:" + data["guild_id"], data["content"])
    if data["content"] == "raises" and self.request.delivery_info["routing_key"] and client.incr("raised") == 1:
        raise ValueError("this one")
    if data["content"] == "later" and client.incr("later") == 1:
        raise TemporaryError("not now")
    if data["content"] == "retries" and client.incr("retries") == 1:
        raise self.retry(countdown=0)
    if data["content"] == "ignores":
        raise Ignore
    if data["content"] == "kills" and client.incr("kills") <= 2:
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    if data["content"] == "hangs" and client.incr("hangs") == 1:
        with contextlib.suppress(SoftTimeLimitExceeded):
            time.sleep(60)
        time.sleep(60)
    time.sleep(0.01)
    client.rpush("done:" + data["guild_id"], data["content"])
"""


@pytest.fixture
def app(valkey: Client) -> Iterator[Celery]:
    with Celery("any", broker=valkey.url, set_as_current=False) as made:
        throttle.install(made)
        yield made


class Heard:
    """Hands events on as a pod's outbox does, of a shard that is always served."""

    def __init__(self, client: Client, app: Celery, task: str, *, ordered: str = "") -> None:
        self.cluster = Cluster(client)
        self.slot = (self.cluster.serving(), 0)
        self._writer = MessageWriter(app, "1", parse_routes("", ordered, "task_queue"), task)
        self._sequence = 1

    def put(self, contents: list[tuple[int, str]]) -> list[Parcel]:
        """Messages of guilds; returns what was sent."""
        parcels: list[Parcel] = []
        for number, content in contents:
            self._sequence += 1
            of = guild(number)
            data = {"id": str(1000 + self._sequence), "guild_id": str(of), "content": content}
            event = Event("s", self._sequence, "MESSAGE_CREATE", data, 100)
            which = identity(event.name, data)
            w = self._writer.write(event, which)
            deed: Any = "line" if w.starter else "push"
            parcels.append(
                Parcel(event.sequence, deed, w.queue, "", of, which, 0, False, w.message, w.starter, w.owner)  # noqa: FBT003
            )
        told = self.cluster.a.deliver(self.slot, batch(self.cluster.a, self.slot, parcels))
        assert told.sequence == self._sequence
        return parcels


def words(client: Client, key: str) -> list[str]:
    raw: Any = client.lrange(key, 0, -1)
    return [word.decode() for word in raw]


def without_repetitions(row: list[str]) -> list[str]:
    return list(dict.fromkeys(row))


def in_threes(row: list[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    return (row[at : at + 3] for at in range(0, len(row), 3))


def test_messages_are_counted_once_though_they_come_twice(workers: Workers, valkey: Client, app: Celery) -> None:
    heard = Heard(valkey, app, "tasks.jobs.gateway_event.gateway_event")
    workers.start(2, pool="threads", concurrency=2)
    parcels = heard.put([(number % 3, f"{number}") for number in range(30)])
    for parcel in parcels[:10]:  # as after a pod's death between a task's end and its acknowledgement
        valkey.lpush("task_queue", parcel.message)
    workers.wait_done(40)
    counted: Any = valkey.hgetall("{headroom:default}:bot:messages")
    assert {int(of): int(count) for of, count in counted.items()} == {guild(number): 10 for number in range(3)}


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_events_of_a_guild_keep_their_order_on_many_workers(
    workers: Workers, valkey: Client, app: Celery, pool: str, tmp_path: Path
) -> None:
    """While pods die: some events are begun again, none is lost, none overtakes another."""
    (tmp_path / "bot_of_test.py").write_text(BOT)
    pods = workers.start(3, pool=pool, concurrency=2, arguments=["--include", "bot_of_test"], PYTHONPATH=str(tmp_path))
    heard = Heard(valkey, app, "bot.on_event", ordered="*")
    rows: dict[int, list[str]] = defaultdict(list)
    everything = [(number % GUILDS, f"{number}") for number in range(GUILDS * EACH)]
    for number, content in everything:
        rows[number].append(content)
    for few, part in enumerate(in_threes(everything)):
        heard.put(part)
        if few == 20:
            pods[0].kill()
    wait_until(lambda: all(len(set(words(valkey, f"done:{guild(n)}"))) == EACH for n in rows), 60.0, what=workers.logs)
    for number, row in rows.items():
        assert without_repetitions(words(valkey, f"order:{guild(number)}")) == row
        again = len(words(valkey, f"order:{guild(number)}")) - len(row)
        assert again <= 1, "only what a dead pod had begun is begun again"
        assert valkey.llen(f"{{cluster:1}}:line:{guild(number)}") == 0
    wait_until(lambda: not valkey.keys("{cluster:1}:turn:*"), 10.0)


def test_an_event_that_raises_or_kills_leaves_its_line(
    workers: Workers, valkey: Client, app: Celery, tmp_path: Path
) -> None:
    (tmp_path / "bot_of_test.py").write_text(BOT)
    workers.start(4, pool="prefork", arguments=["--include", "bot_of_test"], PYTHONPATH=str(tmp_path))
    heard = Heard(valkey, app, "bot.on_event", ordered="*")
    heard.put([(1, "a"), (1, "raises"), (1, "b"), (1, "kills"), (1, "c")])
    key = f"done:{guild(1)}"
    wait_until(lambda: set(words(valkey, key)) == {"a", "raises", "b", "kills", "c"}, 30.0, what=workers.logs)
    done = [word for word in words(valkey, key) if word in "abc"]
    assert done == ["a", "b", "c"]
    begun = words(valkey, f"order:{guild(1)}")
    assert begun.count("raises") == 2
    assert begun.count("kills") == 3
    assert begun.index("c") < len(begun) - 1 - begun[::-1].index("kills")


def test_a_line_whose_task_was_killed_goes_on_with_the_next_event(
    workers: Workers, valkey: Client, app: Celery, tmp_path: Path
) -> None:
    """The event does not end at its time limit, so that its process is killed; with it ends the task."""
    (tmp_path / "bot_of_test.py").write_text(BOT)
    limits: dict[str, Any] = {"TASK_TIME_LIMITS": "task_queue=1/2"}
    workers.start(1, arguments=["--include", "bot_of_test"], PYTHONPATH=str(tmp_path), **limits)
    heard = Heard(valkey, app, "bot.on_event", ordered="*")
    heard.put([(1, "hangs"), (1, "a")])
    wait_until(lambda: "Hard time limit" in workers.logs(), 30.0, what=workers.logs)
    wait_until(lambda: not valkey.keys("{headroom:default}:held:*"), 10.0)
    assert words(valkey, f"done:{guild(1)}") == []
    heard.put([(1, "b")])
    wait_until(lambda: words(valkey, f"done:{guild(1)}") == ["hangs", "a", "b"], 30.0, what=workers.logs)


def test_an_event_that_is_tried_again_comes_once_more_and_no_more(
    workers: Workers, valkey: Client, app: Celery, tmp_path: Path
) -> None:
    """It publishes its next try itself; the line must not do that as well."""
    (tmp_path / "bot_of_test.py").write_text(BOT)
    workers.start(2, pool="threads", arguments=["--include", "bot_of_test"], PYTHONPATH=str(tmp_path))
    heard = Heard(valkey, app, "bot.on_event", ordered="*")
    heard.put([(1, "a"), (1, "later"), (1, "retries"), (1, "ignores"), (1, "b")])
    done, begun = f"done:{guild(1)}", f"order:{guild(1)}"
    wait_until(lambda: set(words(valkey, done)) == {"a", "later", "retries", "b"}, 30.0, what=workers.logs)
    wait_until(lambda: not valkey.keys("{cluster:1}:turn:*") and not valkey.llen("task_queue"), 10.0)
    assert Counter(words(valkey, begun)) == {"a": 1, "later": 2, "retries": 2, "ignores": 1, "b": 1}
    assert Counter(words(valkey, done)) == {"a": 1, "later": 1, "retries": 1, "b": 1}
