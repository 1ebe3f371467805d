"""When a pod votes: rounds by beat, none twice, and a timer where beat is away."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from app.local.waiting import wait_until
from app.shards import broadcast
from tasks.shards.rounds import EXCHANGE, ROUTING_KEY, TASK, Numbers, VoteRounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.guard import Guard
    from tests.support.servers import Client
    from tests.support.workers import Workers

APP = "tests.agreement.rounds_app"
CHANNEL = f"/0.{EXCHANGE}/{ROUTING_KEY}"


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def made(clock: Clock, chance: float = 0.5) -> VoteRounds:
    """Rounds on this clock; a chance of one half means no spread."""
    return VoteRounds(clock=clock, chance=lambda: chance)


def test_a_pod_votes_at_its_start_and_then_each_half_minute_by_itself() -> None:
    clock = Clock()
    rounds = made(clock)
    assert [rounds.take(), rounds.take()] == ["start", None]
    assert rounds.left_s() == 30.0
    clock.now_s += 29.9
    assert rounds.take() is None
    clock.now_s += 0.1
    assert [rounds.take(), rounds.take()] == ["timer", None]


def test_a_round_from_beat_is_taken_once_and_sets_the_timer_anew() -> None:
    clock = Clock()
    rounds = made(clock)
    rounds.take()
    clock.now_s += 25
    assert rounds.ask()
    assert not rounds.ask()  # a second beat
    assert [rounds.take(), rounds.take()] == ["beat", None]
    assert not rounds.ask()
    clock.now_s += 29
    assert rounds.take() is None  # the timer would have rung at 30
    assert rounds.ask()


@pytest.mark.parametrize(("later_s", "taken"), [(0.0, False), (19.9, False), (20.0, True)])
def test_a_round_soon_after_the_last_is_a_duplicate(later_s: float, taken: bool) -> None:  # noqa: FBT001
    clock = Clock()
    rounds = made(clock)
    rounds.ask()
    rounds.take()
    clock.now_s += later_s
    assert rounds.ask() is taken


def test_the_timer_is_spread_by_a_tenth() -> None:
    lefts: list[float] = []
    for chance in (0.0, 0.5, 1.0):
        rounds = made(Clock(), chance)
        rounds.take()
        lefts.append(rounds.left_s())
    assert lefts == pytest.approx([27.0, 30.0, 33.0])


def test_of_many_threads_that_ask_one_round_comes() -> None:
    rounds = made(Clock())
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda: answers.append(rounds.ask())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(answers) == {True: 1, False: 19}


def test_who_waits_in_an_event_loop_is_woken_from_another_thread() -> None:
    rounds = VoteRounds(Numbers(every_s=1000.0, duplicate_s=0.0))

    async def wait() -> list[str]:
        first = await rounds.wait()
        asker = threading.Timer(0.05, rounds.ask)
        asker.start()
        return [first, await asyncio.wait_for(rounds.wait(), 30)]

    assert asyncio.run(wait()) == ["start", "beat"]
    assert rounds.ask()  # nobody waits any more, and no loop is there


def test_the_timer_wakes_who_waits() -> None:
    rounds = VoteRounds(Numbers(every_s=0.02))

    async def wait() -> list[str]:
        return [await asyncio.wait_for(rounds.wait(), 30) for _ in range(3)]

    assert asyncio.run(wait()) == ["start", "timer", "timer"]


@pytest.mark.parametrize("headers", [None, {}, {"task": "other"}])
def test_what_is_no_round_changes_nothing(monkeypatch: pytest.MonkeyPatch, headers: object) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(broadcast, "_here", SimpleNamespace(ask=lambda: not asked.append(True)))
    broadcast.heard(None, SimpleNamespace(headers=headers))
    assert not asked
    broadcast.heard(None, SimpleNamespace(headers={"task": TASK}))
    assert asked == [True]


# ---------------------------------------------------------------- real workers, a real beat


@pytest.fixture
def heard(valkey: Client) -> Iterator[Any]:
    """Hears what is published as rounds."""
    with valkey.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(CHANNEL)
        listener.get_message(timeout=5)
        yield listener


def told(client: Client) -> Counter[str]:
    """How often each worker was told."""
    return Counter(raw.decode() for raw in cast("list[bytes]", client.lrange("told", 0, -1)))


def rounds_of(listener: Any) -> int:
    """How many rounds were published since it was asked last."""
    count = 0
    while listener.get_message(timeout=0.2) is not None:
        count += 1
    return count


@pytest.mark.parametrize("scheduler", ["ours", "celery.beat:PersistentScheduler"])
def test_each_worker_is_told_once_a_round(
    guard: Guard, workers: Workers, valkey: Client, heard: Any, scheduler: str
) -> None:
    pods = {"a": ("prefork", "take"), "b": ("threads", "requeue"), "c": ("solo", "take"), "d": ("gevent", "take")}
    for name, (pool, gate) in pods.items():
        workers.start(names=[name], pool=pool, app=APP, ready=False, GATE=gate)
    wait_until(lambda: dict(cast("Any", valkey.pubsub_numsub(CHANNEL))).get(CHANNEL.encode()) == 1, 60)
    wait_until(lambda: all("@local ready." in pod.read_log() for pod in workers.pods), 60, what=workers.logs)
    command = [sys.executable, "-m", "celery", "-A", APP, "beat", "--pidfile", "", "--loglevel", "INFO"]
    if scheduler != "ours":
        command += ["--scheduler", scheduler, "--schedule", str(workers.folder / "beat.db")]
    env = {**workers.placement.environment(), "POD_NAME": "beat"}
    beat = guard.start("beat", command, log=workers.folder / "beat.log", env=env, cwd=workers.folder)
    wait_until(lambda: min(told(valkey)[f"{name} 1"] for name in pods) >= 4, 60, what=beat.read_log)
    guard.end(beat, patience_s=10)
    published = rounds_of(heard)
    wait_until(lambda: told(valkey).total() >= len(pods) * published, 10)
    assert told(valkey) == {f"{name} 1": published for name in pods}
