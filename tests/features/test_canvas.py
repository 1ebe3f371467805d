# pyright: basic
"""Tasks that depend on tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery import chain, chord, group

from tests.features.table import feature

if TYPE_CHECKING:
    from tests.features.fleet import Fleet

GROUP = "Canvas"


@feature(GROUP, "`chain`")
def test_chain(fleet: Fleet, pool: str) -> None:
    last: Any = chain(fleet.sign("add", 1, 1), fleet.sign("add", 10), fleet.sign("add", 100)).apply_async()
    assert fleet.result(last.id) == 112


@feature(GROUP, "`group`")
def test_group(fleet: Fleet, pool: str) -> None:
    made = group(fleet.sign("add", number, number) for number in range(6)).apply_async()
    assert [fleet.result(part.id) for part in made.results] == [0, 2, 4, 6, 8, 10]


@feature(GROUP, "`chord`")
def test_chord(fleet: Fleet, pool: str) -> None:
    body = chord([fleet.sign("add", number, 1) for number in range(6)])(fleet.sign("add"))
    assert fleet.result(body.id) == 21


@feature(GROUP, "`chord` of which a part is retried, and one of which a part fails")
def test_chord_with_a_retry(fleet: Fleet, pool: str) -> None:
    retried = chord([fleet.sign("flaky", 2), fleet.sign("add", 1, 1)])(fleet.sign("add"))
    failed = chord([fleet.sign("raising"), fleet.sign("add", 1, 1)])(fleet.sign("add"))
    assert fleet.result(retried.id) == 4
    fleet.result(failed.id)
    assert fleet.state(failed.id) == "FAILURE"
    assert fleet.started(failed.id) == 0
