"""Two totals side by side, many times: the alignment on its model, and outboxes with crashes on a real server."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from tests.shards.delivering import Cluster
from tests.shards.test_overlap import Truth, each_event_once, truths
from tests.shards.two_totals import scenario

if TYPE_CHECKING:
    from tests.support.servers import Client

SCENES = 4
FIRST = random.randrange(1_000_000)


@settings(max_examples=4000, deadline=None)
@given(truths())
@pytest.mark.timeout(600)
def test_each_event_is_handed_on_once(truth: Truth) -> None:
    each_event_once(truth)


@pytest.mark.parametrize("number", range(SCENES))
def test_a_change_of_the_total_with_crashes_on_the_way(server: Client, number: int) -> None:
    """The seed is in what it says when it fails."""
    assert scenario(Cluster(server), FIRST + number)
