"""The page tells what the tests prove, and a pool is left out only where Celery leaves it out."""

from __future__ import annotations

from tests.features.table import GATES, collect, on_page, pool_class, table


def test_the_page_shows_the_tests() -> None:
    for gate in GATES:
        assert on_page(gate).read() == table(gate), "write it anew: python -m tests.features.table"


def test_each_reason_holds_on_its_pool() -> None:
    gone = [
        (row.test, pool)
        for row in collect()
        for pool, cannot in row.cannot.items()
        if not cannot.proof(pool_class(pool))
    ]
    assert gone == [], "Celery can: test the feature on this pool"


def test_no_reason_holds_on_a_pool_that_can() -> None:
    wrong = [
        (row.test, pool)
        for row in collect()
        for pool in row.pools("take")
        if row.cannot and all(cannot.proof(pool_class(pool)) for cannot in row.cannot.values())
    ]
    assert wrong == []
