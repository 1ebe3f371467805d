"""Operations written the other way: the scene that proves a guarantee must fail with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.agreement import test_life as life
from tests.agreement import test_target as target
from tests.agreement.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis


class Wrong(NamedTuple):
    """A scene with its arguments, and a text in some script with what stands there instead."""

    scene: Callable[..., None]
    arguments: tuple[str, ...]
    old: str
    new: str


WRONG = [
    Wrong(*each)
    for each in (
        (life.test_more_than_half_gone_at_once_is_not_believed_for_a_while, (), "or was_silent", "and false"),
        (
            life.test_connections_stay_while_redis_is_away_and_are_told_afterwards,
            ("empty",),
            "if n > number('n') and not outdated then",
            "if false then",
        ),
        (
            life.test_an_old_number_does_not_come_back_after_a_loss_of_data,
            (),
            "call('HSET', STATE, 'fence', fence)",
            "local _ = fence",
        ),
        (
            life.test_a_clock_that_is_set_back_holds_nothing_up,
            (),
            "if free_at > now_ms + spacing_ms then",
            "if false then",
        ),
        (
            life.test_a_clock_that_is_set_back_holds_nothing_up,
            (),
            "if number('guard') > now_ms + longest_ms",
            "if false and number('guard') > longest_ms",
        ),
        (
            life.test_a_clock_that_is_set_back_holds_nothing_up,
            (),
            "call('ZADD', NODES, now_ms + ttl_ms, x)",
            "",
        ),
        (target.test_one_value_must_be_told_in_three_rounds, (), "not active and 1 or", "true and 1 or"),
        (
            target.test_what_a_person_set_stays_until_the_person_leaves_it_to_the_votes,
            (),
            "active.by == 'person' and URGENT or rounds",
            "rounds",
        ),
        (target.test_one_pod_that_is_told_otherwise_changes_nothing, (), "count * 2 > needed", "count >= 1"),
        (target.test_a_lone_pod_after_a_loss_of_all_data_is_no_majority, (), "math.max(alive, peak())", "1"),
        (target.test_votes_are_counted_again_when_the_fleet_shrinks, (), "lower_peak()\nchanged", "changed"),
        (target.test_the_reserve_of_the_day_is_kept, (), "(serves and LAST or reserve)", "LAST"),
        (target.test_shards_of_a_bucket_identify_in_order, (), "ZRANGE', waits", "ZREVRANGE', waits"),
    )
]


@pytest.mark.parametrize("wrong", WRONG, ids=[each.scene.__name__.removeprefix("test_") for each in WRONG])
def test_fails_when_written_the_other_way(valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch, wrong: Wrong) -> None:
    monkeypatch.setattr(World, "changes", {wrong.old: wrong.new})
    with pytest.raises(AssertionError):
        wrong.scene(valkey, *wrong.arguments)
