"""What a member of a cluster tells of its shards, from what happens to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tasks.shards import vocabulary as v
from tasks.shards.answers import Head, Target
from tasks.shards.connection import Waiting
from tasks.shards.telling import Teller
from throttle import events

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SLOT = (3, 7)
STATE = v.State("a#1", v.Numbers())


@pytest.fixture
def heard() -> Iterator[list[tuple[object, ...]]]:
    """Names and values of the events, times left out."""
    told: list[tuple[object, ...]] = []

    def hear(event: events.Event, values: Sequence[object]) -> None:
        told.append((event.name, *["s" if isinstance(value, float) else value for value in values]))

    events.subscribe(hear)
    yield told
    events.unsubscribe(hear)


def holding(**own: bool) -> v.State:
    """The state of a member that holds one shard."""
    return STATE._replace(owns={SLOT: v.Own(5, **own)})


@pytest.mark.parametrize("how", ["hand over", "retire"])
def test_a_shard_from_its_claim_to_its_release(heard: list[tuple[object, ...]], how: v.How) -> None:
    teller = Teller()
    teller.does(v.Open(SLOT, 8, 5))
    teller.heard(v.Opened(SLOT, 4), holding())  # of an earlier fence: it is not ours
    teller.heard(v.Opened(SLOT, 5), holding(ready=True))
    teller.does(v.Close(SLOT, 5, how))
    teller.heard(v.Closed(SLOT, 5), STATE)
    assert len(heard) == 2, "Redis has not confirmed it"
    teller.heard(v.Released(SLOT), STATE)
    teller.heard(v.Released(SLOT), STATE)  # a RELEASE that was sent twice
    assert heard == [
        ("shard claimed", 3, 7),
        ("shard ready", 3, 7, "s"),
        ("shard released", 3, 7, how),
    ]


def test_how_a_shard_goes_that_nobody_gave_up(heard: list[tuple[object, ...]]) -> None:
    teller = Teller()
    teller.does(v.Open(SLOT, 8, 5))
    teller.heard(v.Closed(SLOT, 5, "4014"), STATE)
    teller.heard(v.Released(SLOT), STATE)
    teller.does(v.Open(SLOT, 8, 6))
    teller.does(v.Close(SLOT, 6, "lost"))
    teller.heard(v.Released((3, 8)), STATE)  # given back before it was opened, its target being over
    assert [each[-1] for each in heard if each[0] == "shard released"] == ["failed", "lost"]


def test_each_answer_of_the_gate_has_a_word(heard: list[tuple[object, ...]]) -> None:
    teller = Teller()
    for answer in (5300, -1, -2, -3, None, 0):
        teller.gate(SLOT, answer, 0.0, in_time=False)
    teller.gate(SLOT, 0, 0.0, in_time=True)
    assert [each[3:] for each in heard] == [
        ("wait", None), ("not held", None), ("budget", None), ("unknown", None), ("away", None), ("late", None),
        ("granted", "s"),
    ]  # fmt: skip


def test_votes_and_targets(heard: list[tuple[object, ...]]) -> None:
    teller = Teller()
    head = Head(1, 0, 1, 1, 5, 0, Target(2, 4, 0, "votes"), Target(3, 8, 0, "votes"), 2)
    state = STATE._replace(head=head)
    teller.voted(8, "none")
    teller.voted(8, "proposed")
    teller.changed("active", state, 3)
    teller.changed("aborted", state, 9)  # it is not known any more
    assert heard == [
        ("shard voted", 8, "none"), ("shard voted", 8, "proposed"), ("shard target changed", "proposed", 8),
        ("shard target changed", "active", 8), ("shard target changed", "aborted", 0),
    ]  # fmt: skip
    owns = {(3, n): v.Own(n, ready=n > 0, closing=n > 2) for n in range(4)}
    found = teller.figures(state._replace(owns=owns), Waiting(3, 300, float("-inf")))
    assert (found.initialising, found.ready, found.closing) == (1, 2, 1)
    assert (found.active, found.pending, found.leased, found.identifies_left) == (4, 8, False, None)
    assert (found.waiting.events, found.oldest_s) == (3, float("inf"))
    teller.heard(v.Told(8, 1, 1000, 617, 0), state)
    found = teller.figures(state, Waiting())
    assert (found.identifies_left, found.oldest_s) == (617, 0)
