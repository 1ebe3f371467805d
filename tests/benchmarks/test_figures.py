"""The figures that are worked out from what tasks recorded, on schedules written by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.beat import Run as Scheduled
from benchmarks.beat import figures as schedule_figures
from benchmarks.fleet import Run
from benchmarks.report import Report, quantile
from benchmarks.wakeups import wake_ups_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest


def runs(*spans: tuple[float, float] | tuple[float, float, str]) -> list[Run]:
    """Runs from their times; normal unless a queue is named."""
    return [
        Run(str(number), "pod", span[2] if len(span) == 3 else "work", str(number), span[0], span[1])
        for number, span in enumerate(spans)
    ]


def waits(of: Iterable[Run], places: int) -> list[float]:
    return [round(wait, 3) for wait in wake_ups_ms(of, places=places, critical="critical")]


def test_each_end_is_followed_by_the_next_start_on_any_pod() -> None:
    assert waits(runs((0, 1), (0, 1.5), (1.002, 2), (1.505, 2.5)), places=2) == [2, 5]


def test_places_that_became_free_together_are_taken_in_their_order() -> None:
    assert waits(runs((0, 1), (0, 1.001), (1.004, 2), (1.005, 2)), places=2) == [4, 4]


def test_the_first_starts_follow_no_end() -> None:
    assert waits(runs((0, 1), (0.3, 1)), places=2) == []


def test_a_critical_task_in_the_reserve_delays_no_wake_up_figure() -> None:
    """While it runs beside two others, an end makes no room; its own end does."""
    flood = runs((0, 1), (0, 2), (0.9, 1.5, "critical"), (1.503, 2.5))
    assert waits(flood, places=2) == [3]


def test_a_critical_task_takes_a_free_place() -> None:
    flood = runs((0, 1), (0, 2), (1.001, 1.4, "critical"), (1.404, 2.5))
    assert waits(flood, places=2) == [4]


def test_an_end_comes_before_a_start_of_the_same_instant() -> None:
    assert waits(runs((0, 1), (1, 2)), places=1) == [0]


def test_quantiles_are_values_that_were_measured() -> None:
    values = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert quantile(values, 0.5) == 3
    assert quantile(values, 0.99) == 5
    assert quantile([], 0.5) is None


def test_a_missed_count_fails_a_benchmark_and_a_missed_time_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("test", quiet=True)
    row = {"system": "headroom", "lost": 0, "wake_ms": 50.0}
    report.add(row)
    report.expect(row, "lost", "exactly", 0)
    report.expect(row, "wake_ms", "at most", 8, binding=False)
    assert report.finish(["lost", "wake_ms"], heads=["system"]) == 0
    report.expect(row, "lost", "exactly", 1)
    assert report.finish(["lost", "wake_ms"], heads=["system"]) == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["results"][0]["missed"] == ["lost is 0, target exactly 1"]
    assert last["results"][0]["slow"] == ["wake_ms is 50, target at most 8"]


def test_a_figure_that_could_not_be_measured_has_missed_its_target() -> None:
    report = Report("test", quiet=True)
    row = {"wake_ms": None}
    report.add(row)
    report.expect(row, "wake_ms", "at most", 8)
    report.expect({**row, "wake_ms": 9}, "wake_ms", "at least", 9)
    report.expect({**row, "wake_ms": 7}, "wake_ms", "at least", 8)
    assert report.missed == ["wake_ms is -, target at most 8", "wake_ms is 7, target at least 8"]


def test_runs_of_a_schedule_are_held_against_their_due_times() -> None:
    """The third due time has no run, the fourth has two; plain beat's due times are reckoned from its runs."""
    told = [Scheduled("entry-00", due_s + 0.004, due_s) for due_s in (10.0, 10.5, 11.5, 11.5)]
    found = schedule_figures(told, from_s=10.0, kill_s=11.0)
    assert schedule_figures(told, from_s=10.0, kill_s=11.6)["next_s"] is None
    assert schedule_figures(told, from_s=10.0, kill_s=10.49)["next_s"] == 1.01, "taken after the kill, published before"
    assert (found["missing"], found["doubled"], found["late_p50_ms"]) == (1, 1, 4)
    assert found["next_s"] == 0.5
    plain = [Scheduled("entry-00", at_s, None) for at_s in (10.0, 10.51, 11.02, 12.02)]
    found = schedule_figures(plain, from_s=10.0, kill_s=11.5)
    assert (found["missing"], found["doubled"]) == (1, 0)
    assert (found["late_p50_ms"], found["drift_ms"]) == (10, 20)
