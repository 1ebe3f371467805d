"""The fleet without Celery, as its users meet it: several members, threads, processes that are killed or frozen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.support.leaks import leaked_keys
from tests.support.waiting import wait_until
from throttle import Fleet
from throttle.errors import ConfigurationError, NameClash, NotAMember
from throttle.scripts import Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMBER = """
import sys, redis
from throttle import Fleet
url, pod = sys.argv[1:3]
with Fleet(redis.Redis.from_url(url), name="f", pod=pod, ttl_s=3) as fleet:
    permit = fleet.try_acquire()
    print("permit" if permit else "denied", flush=True)
    for line in sys.stdin:
        print(permit.is_valid() if line.strip() == "valid" else fleet.beat(), flush=True)
"""


class Child:
    """A member in a process of its own that holds a permit and answers questions on a pipe."""

    def __init__(self, url: str, pod: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", MEMBER, url, pod], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first = self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, question: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self.read()

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def child(server: Any) -> Iterator[Child]:
    """The pod `child`, which holds a permit."""
    made = Child(server.url, "child")
    assert made.first == "permit"
    yield made
    made.end()


def member(server: Any, pod: str, **options: Any) -> Fleet:
    fleet = Fleet(server, name="f", pod=pod, ttl_s=3, **options)
    fleet.join()
    return fleet


def test_the_rule_over_five_pods(server: Any) -> None:
    fleets = [member(server, f"p{n}") for n in range(5)]
    permits = [fleet.try_acquire() for fleet in fleets]
    assert [permit is not None for permit in permits] == [True, True, True, True, False]
    assert fleets[4].counts() == Counts(5, 4, 4, 0, 0, 0, 0, 0)
    assert fleets[4].counts().reserve == 1
    assert fleets[0].try_acquire() is not None, "a pod counts once, however much it does"
    urgent = fleets[4].try_acquire("critical")
    assert urgent is not None
    assert urgent.release()
    assert not urgent.release(), "the second time has no effect"
    assert permits[1] is not None
    assert permits[1].release()
    assert fleets[4].try_acquire() is not None


def test_a_single_pod_may_always_work(server: Any) -> None:
    assert member(server, "only", ratio=0.1).try_acquire() is not None


def test_leaving_frees_and_leaves_no_keys(server: Any) -> None:
    with Fleet(server, name="f", pod="a", ttl_s=3) as fleet:
        permit = fleet.try_acquire()
        assert permit is not None
        assert permit.is_valid()
    assert not permit.is_valid()
    assert fleet.counts() == Counts(0, 0, 1, 0, 0, 0, 0, 0)
    assert leaked_keys(server, ["*:epoch"]) == []


def test_draining_keeps_permits_and_gives_no_new_ones(server: Any) -> None:
    fleet = member(server, "a")
    other = member(server, "b")
    permit = fleet.try_acquire()
    assert permit is not None
    fleet.drain()
    assert fleet.beat() == "draining"
    assert fleet.try_acquire("critical") is None
    assert permit.is_valid()
    assert other.try_acquire() is not None, "a draining pod is not counted as busy"
    assert permit.release()


def test_a_killed_pod_frees_its_slot_after_a_ttl(server: Any, child: Child) -> None:
    with Fleet(server, name="f", pod="other", ttl_s=3) as other:
        assert other.try_acquire() is None
        child.send(signal.SIGKILL)
        wait_until(lambda: other.try_acquire() is not None, timeout_s=8)
        assert other.counts().alive == 1


def test_a_restarted_pod_is_back_within_one_beat(server: Any, child: Child) -> None:
    child.send(signal.SIGKILL)
    fleet = Fleet(server, name="f", pod="child", ttl_s=3)

    def joined() -> bool:
        try:
            fleet.join()
        except NameClash:
            return False
        return True

    wait_until(joined, timeout_s=2)
    assert fleet.try_acquire() is not None
    assert fleet.counts().alive == 1


def test_a_second_process_under_a_living_name_is_refused(server: Any, child: Child) -> None:
    with pytest.raises(NameClash, match=r"^pod 'child' is taken in fleet 'f': child#\w+ has beaten within 1 s;"):
        member(server, "child")
    assert child.ask("valid") == "True"


def test_a_pod_frozen_past_its_ttl_has_lost_its_permit(server: Any, child: Child) -> None:
    """Its slot went to another pod meanwhile; woken, it joins anew and does not get it back."""
    with Fleet(server, name="f", pod="other", ttl_s=3) as other:
        child.send(signal.SIGSTOP)
        wait_until(lambda: other.try_acquire() is not None, timeout_s=8)
        wait_until(lambda: other.counts().silent == 0, timeout_s=8)
        child.send(signal.SIGCONT)
        wait_until(lambda: other.counts().alive == 2, timeout_s=5)
        assert child.ask("valid") == "False"
        assert other.counts().busy == 1


def test_a_loss_of_all_data_is_healed_by_the_members(server: Any) -> None:
    fleet = member(server, "a")
    permit = fleet.try_acquire()
    assert permit is not None
    server.flushall()
    assert fleet.counts().alive == 0
    assert fleet.beat() == "living"
    assert permit.is_valid()
    assert fleet.counts()[:3] == (1, 1, 1)
    assert permit.release()


def test_without_a_membership_there_are_no_permits(server: Any) -> None:
    fleet = Fleet(server, name="f", pod="a", ttl_s=3)
    with pytest.raises(NotAMember, match=r"^a is not a member of fleet 'f'; join first$"):
        fleet.try_acquire()


@pytest.mark.parametrize(("policy", "given"), [("allow", True), ("deny", False)])
def test_policy_while_redis_is_away(server: Any, policy: Any, given: bool) -> None:  # noqa: FBT001 - a table
    fleet = member(server, "a", on_redis_error=policy)
    away = redis.Redis(port=1, socket_connect_timeout=0.2)
    fleet.operations.client = away
    permit = fleet.try_acquire()
    assert (permit is not None) == given
    fleet.operations.client = server
    fleet.beat()
    if permit is not None:
        assert not permit.is_valid()
        assert not permit.release()
    assert fleet.counts().busy == 0


def test_an_answer_lost_on_the_way_leaves_no_phantom(server: Any) -> None:
    """ACQUIRE was done, its answer never came: the next beat gives the slot back."""
    fleet = member(server, "a")
    done = fleet.operations.acquire

    def lost(*args: Any, **options: Any) -> Any:
        done(*args, **options)
        raise redis.ConnectionError

    fleet.operations.acquire = lost
    uncounted = fleet.try_acquire()
    assert uncounted is not None
    assert not uncounted.counted
    assert fleet.counts().busy == 1
    fleet.beat()
    assert fleet.counts().busy == 0


def test_a_pod_that_somebody_else_drained_gets_nothing_more(server: Any) -> None:
    fleet = member(server, "a")
    permit = fleet.try_acquire()
    assert permit is not None
    fleet.operations.drain(fleet.member)
    assert fleet.try_acquire() is None
    assert fleet.beat() == "draining"
    assert permit.is_valid()


def test_a_join_whose_answer_was_lost_is_no_clash_with_itself(server: Any) -> None:
    fleet = Fleet(server, name="f", pod="a", ttl_s=3)
    done = fleet.operations.join

    def lost(*args: Any, **options: Any) -> Any:
        done(*args, **options)
        fleet.operations.join = done
        raise redis.ConnectionError

    fleet.operations.join = lost
    with pytest.raises(redis.ConnectionError):
        fleet.join()
    fleet.join()
    assert fleet.counts().alive == 1


def test_threads_share_a_member(server: Any) -> None:
    fleet = member(server, "a")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(25):
                permit = fleet.try_acquire()
                assert permit is not None
                with permit:
                    assert permit.is_valid()
        except BaseException as error:  # noqa: BLE001 - carried to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert fleet.counts().busy == 0


def test_an_unknown_lane_is_refused(server: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^lane='urgent': allowed is normal or critical$"):
        member(server, "a").try_acquire("urgent")  # pyright: ignore[reportArgumentType]
