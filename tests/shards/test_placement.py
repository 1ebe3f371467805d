"""Where shards go: level, the same everywhere, and nothing that is connected moves."""

from __future__ import annotations

from collections import Counter

import pytest

from tasks.shards.placement import UNLIMITED, Pod, cap, place, surplus


def pods(count: int, limit: int = UNLIMITED) -> list[Pod]:
    return [Pod(f"pod-{number}", limit) for number in range(count)]


@pytest.mark.parametrize(("shards", "count"), [(512, 12), (512, 11), (16, 3), (64, 9), (1, 5), (7, 7), (10, 1)])
def test_all_are_placed_below_the_cap(shards: int, count: int) -> None:
    placed = place(shards, {}, pods(count))
    assert sorted(placed) == list(range(shards))
    assert max(Counter(placed.values()).values()) <= cap(shards, count)


def test_512_shards_on_12_pods_stand_level() -> None:
    load = Counter(place(512, {}, pods(12)).values())
    assert max(load.values()) / (512 / 12) <= 1.11


def test_losing_a_pod_moves_what_it_held_and_nothing_else() -> None:
    before = place(512, {}, pods(12))
    held = {shard: pod for shard, pod in before.items() if pod != "pod-11"}
    orphans = place(512, held, pods(11))
    assert sorted(orphans) == sorted(shard for shard, pod in before.items() if pod == "pod-11")
    load = Counter([*held.values(), *orphans.values()])
    assert max(load.values()) / (512 / 11) <= 1.11


def test_the_order_in_which_pods_are_known_does_not_matter() -> None:
    assert place(64, {}, pods(9)) == place(64, {}, pods(9)[::-1])


def test_most_stay_where_they_were_drawn_to_when_a_pod_comes() -> None:
    """Placed from nothing, as after the loss of everything: rendezvous keeps most of it."""
    before, after = place(512, {}, pods(12)), place(512, {}, pods(13))
    moved = sum(before[shard] != after[shard] for shard in before)
    assert moved <= 512 / 13 * 2


def test_a_limit_holds_and_what_is_above_all_of_them_waits() -> None:
    placed = place(16, {}, [Pod("small", 2), Pod("large", 10)])
    assert Counter(placed.values()) == {"small": 2, "large": 10}
    assert len(placed) == 12


def test_shards_of_other_targets_count_towards_the_limit() -> None:
    placed = place(8, {}, [Pod("a", 6), Pod("b", 20)], {"a": 4})
    assert Counter(placed.values())["a"] == 2


def test_nobody_takes_shards() -> None:
    assert place(8, {}, []) == {}


def test_levelling_ends() -> None:
    """One pod joins nine; each hands over one shard at a time until all stand level."""
    known = pods(10)
    held = place(64, {}, known[:9])
    moves = 0
    while any(surplus(pod.name, held, known) is not None for pod in known):
        for pod in known:
            shard = surplus(pod.name, held, known)
            if shard is not None:
                del held[shard]
                held |= place(64, held, known, handed={shard})
                moves += 1
        assert moves < 64
    load = Counter(held.values())
    assert max(load.values()) - min(load[pod.name] for pod in known) <= 1


def test_nothing_is_handed_to_a_pod_that_is_full() -> None:
    assert surplus("a", dict.fromkeys(range(8), "a"), [Pod("a", 10), Pod("b", 0)]) is None
