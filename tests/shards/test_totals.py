"""Which totals a person may ask for."""

from __future__ import annotations

import pytest

from tasks.shards.totals import MOST, Advice, refusal

SMALL, LARGE = Advice(10, 1000, 1), Advice(64, 2000, 16)


@pytest.mark.parametrize(
    ("total", "advice", "said"),
    [
        (1, None, ""),
        (MOST, None, ""),
        (0, None, "from 1 to"),
        (-1, SMALL, "from 1 to"),
        (MOST + 1, None, "from 1 to"),
        (10, SMALL, ""),
        (4, SMALL, ""),
        (3, SMALL, "too few"),
        (13, SMALL, ""),
        (1, Advice(1, 1000, 1), ""),
        (64, LARGE, ""),
        (128, LARGE, ""),
        (32, LARGE, "multiple of 64"),
        (96, LARGE, "multiple of 64"),
        (65, Advice(64, 1000, 16), "multiple of 64"),
        (65, Advice(64, 2000, 1), "multiple of 64"),
    ],
)
def test_a_total_is_refused_with_its_reason(total: int, advice: Advice | None, said: str) -> None:
    assert (said in refusal(total, advice)) if said else refusal(total, advice) == ""
