"""Soak, recovery and flood at their smallest, as a person starts them; and the figures that they work out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from app.local.replay import Take
from benchmarks.blows import Blow
from benchmarks.chaos.checker import Run
from benchmarks.fleet import Run as Told
from benchmarks.flood import disorder
from benchmarks.recovery import cut_off, full_from
from tests.measure.test_runs import rows

if TYPE_CHECKING:
    from collections.abc import Iterable


def test_soak_counts_what_it_did_and_finds_nothing_wrong() -> None:
    (row,) = rows("soak", "--minutes", "0.18", "--seed", "7", "--rate", "20")
    assert (row["seed"], row["lost"], row["unexplained"], row["leaked_slots"], row["leaked_keys"]) == (7, 0, 0, 0, 0)
    assert row["tasks"] > 20
    assert row["kills"] >= 1
    assert row["pods_started"] > 2


def test_recovery_counts_from_the_blow_to_the_whole_work() -> None:
    (row,) = rows("recovery", "--system", "headroom", "--case", "crash", "--ttl", "3")
    assert (row["case"], row["cut_off"], row["target_s"]) == ("crash", 1, 5)
    assert 1.5 < row["full_s"] <= 5


def test_flood_fills_redis_and_everything_accepted_is_done() -> None:
    (row,) = rows("flood", "--seconds", "3", "--maxmemory", "4", "--pods", "2")
    assert row["refused"] > 0
    assert row["order_checked"] == row["accepted"] > 100


# ---------------------------------------------------------------- recovery's figures


def work(*spans: tuple[float, float | None]) -> list[Run]:
    """Runs from their times."""
    return [Run("pod", from_s, to_s, "SUCCESS" if to_s else None) for from_s, to_s in spans]


def steady(from_s: int, to_s: int) -> Iterable[tuple[float, float]]:
    """One place that is busy all the time, with tasks of a second."""
    return [(float(at_s), at_s + 1.0) for at_s in range(from_s, to_s)]


def test_the_whole_work_goes_on_when_all_places_are_busy() -> None:
    runs = work(*steady(0, 20), *steady(0, 5), *steady(12, 20))
    assert full_from(runs, from_s=5, places=2, now_s=20) == 12
    assert full_from(runs, from_s=5, places=1, now_s=20) == 5
    assert full_from(runs, from_s=5, places=3, now_s=20) is None


def test_what_runs_still_counts_until_now() -> None:
    assert full_from(work((3, None)), from_s=0, places=1, now_s=10) == 3
    assert full_from(work((3, None)), from_s=0, places=1, now_s=4) is None


def test_a_task_that_was_cut_off_is_followed_to_its_next_start() -> None:
    blow = Blow(10.0, 10.1, ("dead",), gone=1)
    runs = {
        "again": [Run("dead", 9.8, None, None), Run("other", 13.0, 13.5, "SUCCESS")],
        "lost": [Run("dead", 9.9, None, None)],
        "done": [Run("dead", 9.0, 9.7, "SUCCESS")],
        "elsewhere": [Run("other", 9.9, None, None)],
        "since": [Run("dead", 12.0, None, None)],
    }
    assert cut_off(runs, blow) == {"again": 13.0, "lost": None}


# ---------------------------------------------------------------- flood's figures


@pytest.mark.parametrize(
    ("order", "wrong"),
    [(["0-1", "1-1", "0-2", "1-2"], 0), (["0-1", "0-3", "0-2"], 1), (["0-1", "1-9", "0-2", "1-3", "1-4"], 2)],
    ids=["each-in-order", "one-early", "two-late"],
)
def test_order_is_that_of_each_producer(order: list[str], wrong: int) -> None:
    takes = [Take("pod", number, number, "work", 0, 0, critical=False) for number in range(len(order))]
    runs = [Told(task, "pod", "work", str(number), 0.0, 0.0) for number, task in enumerate(order)]
    assert disorder(takes[::-1], runs) == (wrong, len(order))
