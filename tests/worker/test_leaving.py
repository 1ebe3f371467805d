"""A pod that leaves tells first what has ended: LEAVE returns everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.worker.conftest import KEYS
from throttle.scripts import Operations, Rule, Take
from throttle.settings import load_settings
from throttle.worker import vocabulary as v
from throttle.worker.driver import Driver
from throttle.worker.state import Held

if TYPE_CHECKING:
    from tests.support.servers import Client

MESSAGE = b"a message"


class Cut(Operations):
    """Operations whose acknowledgements do not get through for a while, though all else does."""

    failing = 0
    error: Exception = redis.ConnectionError("the connection was cut")

    def ack(self, *args: Any, **options: Any) -> bool:
        """Fail so often."""
        if self.failing:
            self.failing -= 1
            raise self.error
        return super().ack(*args, **options)


@pytest.fixture
def driver(valkey: Client) -> Driver:
    """A member that holds one message, whose task runs."""
    operations = Cut(valkey, KEYS, Rule(0.8, 30000, 5, 0))
    made = Driver(operations, load_settings(fleet=KEYS.fleet))
    assert made.beat()
    valkey.lpush("work", MESSAGE)
    taken = operations.take(made.state.member, 1, [], ["work"])
    assert isinstance(taken, Take)
    made.state = made.state._replace(held={1: Held(taken, made.state.member, stage="running")}, next_id=2)
    return made


def operations_of(driver: Driver) -> Cut:
    """Those of the fixture."""
    assert isinstance(driver.operations, Cut)
    return driver.operations


@pytest.mark.parametrize("follows", [True, False], ids=["pending", "owed"])
@pytest.mark.parametrize("failing", [0, 1, 2, 3])
def test_an_end_that_was_cut_off_goes_before_leave(valkey: Client, driver: Driver, failing: int, follows: bool) -> None:  # noqa: FBT001 - a parameter
    operations_of(driver).failing = failing
    driver.feed(v.Acked(1, busy=False, follows=follows))
    assert driver.leave()
    assert valkey.llen("work") == 0, "the message of a task that was done came again"
    assert driver.state.held == {}


def test_what_has_not_ended_goes_back(valkey: Client, driver: Driver) -> None:
    assert driver.leave()
    assert valkey.lrange("work", 0, -1) == [MESSAGE]


def test_where_no_end_gets_through_leave_is_not_sent(
    valkey: Client, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fleet returns the message when the pod has been silent for a TTL; until then somebody may still be told."""
    monkeypatch.setattr("throttle.worker.membership.OWED_S", 0.2)
    monkeypatch.setattr("throttle.worker.membership.AGAIN_S", 0.2)
    operations_of(driver).failing = 1000
    driver.feed(v.Acked(1, busy=False, follows=False))
    assert not driver.leave()
    assert [held.owed for held in driver.state.held.values()] == [True]
    assert valkey.llen("work") == 0


def test_an_end_that_redis_refuses_does_not_keep_a_pod_from_leaving(
    valkey: Client, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("throttle.worker.membership.OWED_S", 0.2)
    operations = operations_of(driver)
    operations.failing, operations.error = 1000, redis.ResponseError("no")
    driver.feed(v.Acked(1, busy=False, follows=False))
    assert driver.leave()
    assert valkey.lrange("work", 0, -1) == [MESSAGE]


def test_who_never_joined_has_nothing_to_tell(valkey: Client) -> None:
    assert Driver(Operations(valkey, KEYS, Rule(0.8, 30000, 5, 0)), load_settings(fleet=KEYS.fleet)).leave()
