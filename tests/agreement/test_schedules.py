"""Random schedules from seeds, and operations written wrong that they must notice.

How many: `SHARD_SCHEDULES` (a few in the suite; the CI step `shards` runs a thousand, beginning elsewhere each time).
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.agreement.chaos import schedule

if TYPE_CHECKING:
    import redis

FEW = 12
COUNT = int(os.environ.get("SHARD_SCHEDULES", str(FEW)))
FIRST = 0 if COUNT <= FEW else random.randrange(1_000_000)
BATCHES = 12
PATIENCE = 60
"""Schedules in which a wrong operation must be noticed."""

FOUND = (85731, 76272, 779667)
"""85731: two members without a lease, both waiting for the end of the guard after a loss of data.
76272: one that was away from before a loss of data comes back when others have numbered new targets from 1.
779667: a CLAIM's answer that a member reads when it wakes up from a frost that was longer than its lease."""

WRONG = {
    "takes what somebody holds": {"local free = not bind or": "local free = true or not bind or"},
    "gives a dead member's shards up early": {
        "'-inf', now_ms)\n  if #dead": "'-inf', now_ms + ttl_ms / 2)\n  if #dead"
    },
    "no guard after a loss of data": {"arm('no data')": "", "arm('another server')": "", "arm('an older state')": ""},
    "no spacing": {"if free_at > now_ms then return wait(free_at - now_ms) end": ""},
}


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.timeout(1800 if COUNT > FEW else 300)
def test_random_schedules(valkey: redis.Redis, batch: int) -> None:
    for number in range(batch, COUNT, BATCHES):
        schedule(valkey, FIRST + number)


@pytest.mark.parametrize("seed", FOUND)
def test_schedules_that_found_something(valkey: redis.Redis, seed: int) -> None:
    schedule(valkey, seed)


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.timeout(300)
def test_a_wrong_operation_is_noticed(valkey: redis.Redis, fault: str) -> None:
    def notices(seed: int) -> bool:
        try:
            schedule(valkey, seed, 60.0, WRONG[fault])
        except AssertionError:
            return True
        return False

    assert any(notices(seed) for seed in range(PATIENCE)), f"nothing noticed: {fault}"
