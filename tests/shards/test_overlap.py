"""The alignment of two sessions against a model that knows the truth: each event is handed on once, whatever repeats.

The model has one row of events for each guild. The active target hears it with some delay and hands on until the FLIP;
the pending one hears it with another delay from the middle on. Some are told late, by a RESUME.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.shards.delivery.overlap import ALL_LEFT, Overlap
from tasks.shards.delivery.windows import Copy, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable

BEGAN_S = 100.0
GAP_S = 0.4
"""Equal events are so far apart at least, and delays vary by an eighth of it."""


class Event(NamedTuple):
    """One that happened."""

    number: int
    guild: int
    identity: str
    at_s: float


class Truth(NamedTuple):
    """What happened, and how the two targets heard of it."""

    events: list[Event]
    ready_s: float
    flip_s: float
    delays_s: tuple[float, float]
    seed: int
    polls: bool
    """The log is read while the target is pending, not at the FLIP alone."""
    crash: float | None
    """B's pod dies when it has moved past so much of what it had at the FLIP; another one goes on."""
    away: tuple[float, float] | None
    """Between these times A's connection is gone; it is told by a RESUME at the end of it."""


@st.composite
def rows(draw: st.DrawFn) -> list[tuple[str, float]]:
    """One guild: what happens, and after how long."""
    kind = draw(st.sampled_from(["unique", "periodic", "equal", "mixed"]))
    length = draw(st.integers(0, 14))
    gaps = draw(st.lists(st.floats(GAP_S, 3.0), min_size=length, max_size=length))
    if kind == "unique":
        return [(f"=u{number}", gap) for number, gap in enumerate(gaps)]
    if kind == "periodic":
        period = draw(st.integers(1, 3))
        return [(f"~p{number % period}", gap) for number, gap in enumerate(gaps)]
    if kind == "equal":
        return [("~e", gap) for gap in gaps]
    kinds = draw(st.lists(st.sampled_from(["=", "~a", "~b"]), min_size=length, max_size=length))
    return [
        (f"=m{number}" if what == "=" else what, gap)
        for number, (what, gap) in enumerate(zip(kinds, gaps, strict=True))
    ]


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    events: list[Event] = []
    for guild, row in enumerate(draw(st.lists(rows(), min_size=1, max_size=4)), start=1):
        at_s = BEGAN_S + draw(st.floats(0, 2.0))
        for identity, gap_s in row:
            at_s += gap_s
            number = len(events)
            events.append(Event(number, guild, identity.replace("=", f"={guild}-"), at_s))
    ready_s, crash = BEGAN_S + draw(st.floats(0, 15.0)), draw(st.none() | st.floats(0, 1))
    # A successor is told of all at once. Whether an equal event came just before or just after READY it cannot know.
    while crash is not None and any(abs(event.at_s - ready_s) < GAP_S / 2 for event in events):
        ready_s += GAP_S / 2
    # Both rows told late leave no times at all: what repeats itself could begin anywhere.
    away_from = draw(st.none() | st.floats(BEGAN_S, ready_s + 5)) if crash is None else None
    away = None if away_from is None else (away_from, away_from + draw(st.floats(0.1, 4.0)))
    delay_s, apart_s = draw(st.floats(0, 0.5)), draw(st.floats(-GAP_S / 8, GAP_S / 8))
    far_apart = draw(st.booleans())
    if far_apart:
        apart_s = draw(st.floats(-0.5, 0.5))
    delays_s = max(delay_s, -apart_s), max(delay_s, -apart_s) + apart_s
    flip_s = ready_s + delays_s[1] + draw(st.floats(1.2, 15.0))  # FLIP waits for so long after B had its READY
    if far_apart:  # a guild in which messages are written tells how far
        events += [
            Event(len(events) + number, 99, f"=99-{number}", BEGAN_S + number / 3)
            for number in range(int(3 * (flip_s + 5.0 - BEGAN_S)))
        ]
    return Truth(
        sorted(events, key=lambda event: event.at_s),
        ready_s,
        flip_s if away is None else max(flip_s, away[1] + 1.0),
        delays_s,
        draw(st.integers(0, 999)),
        draw(st.booleans()),
        crash,
        away,
    )


class Heard(NamedTuple):
    """An event as it came to one of the targets."""

    event: Event
    at_s: float
    replayed: bool


def ms(at_s: float) -> int:
    return round(at_s * 1000)


def hears(truth: Truth, which: int) -> list[Heard]:
    """What A (0) or B (1) hears of all that happens, in its order."""
    chance = random.Random(truth.seed + which)
    delay_s, found, last_s = truth.delays_s[which], list[Heard](), 0.0
    for event in truth.events:
        at_s, replayed = event.at_s + delay_s + chance.uniform(0, GAP_S / 8), False
        if which == 0 and truth.away and truth.away[0] <= at_s < truth.away[1]:
            at_s, replayed = truth.away[1], True
        last_s = max(last_s, at_s)
        found.append(Heard(event, last_s, replayed))
    return found


class Fleet:
    """The log in Redis, and B's pods one after the other."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.done: Counter[int] = Counter()
        self.order: list[Event] = []
        self.log: dict[str, Entry] = {}
        b = [heard for heard in hears(truth, 1) if heard.event.at_s > truth.ready_s]
        self.b = dict(enumerate(b, start=2))
        self.saved = 1
        self.pruned = False

    def hand_on(self, event: Event) -> None:
        self.done[event.number] += 1
        self.order.append(event)

    def run(self) -> None:
        truth = self.truth
        a = [heard for heard in hears(truth, 0) if heard.at_s <= truth.flip_s]
        polls = [truth.ready_s + number for number in range(int(truth.flip_s - truth.ready_s))] if truth.polls else []
        pod = Pod(self)
        for now_s in [*polls, truth.flip_s]:
            for heard in a:
                if heard.at_s <= now_s and not self.done[heard.event.number]:
                    self.hand_on(heard.event)
                    e = heard.event
                    entry = Entry(f"{len(self.order):06}-0", e.guild, e.identity, ms(heard.at_s), heard.replayed)
                    self.log[entry.id] = entry
            pod.read(now_s)
            pod.hear(now_s)
            pod.settle(now_s, final=False)
            pod.move_on(self.saved + 10_000, final=False)
        pod.settle(truth.flip_s, final=True)
        if truth.crash is not None:
            has = [sequence for sequence, heard in self.b.items() if heard.at_s <= truth.flip_s]
            pod.move_on(self.saved + int(len(has) * truth.crash), final=True)
            pod = Pod(self, successor_s=truth.flip_s + 12.0)
            pod.read(truth.flip_s + 12.0)
        last_s = max([pod.since_s, *(heard.at_s for heard in self.b.values())])
        for now_s in sorted({max(pod.since_s, heard.at_s) for heard in self.b.values()} | {last_s}):
            pod.hear(now_s)
            pod.settle(now_s, final=True)
            pod.move_on(10**9, final=True)


class Pod:
    """What a pod that holds B's shard knows."""

    def __init__(self, fleet: Fleet, successor_s: float | None = None) -> None:
        """`successor_s`: it resumed then, and is told all at once what came since the saved sequence."""
        self.fleet, self.since_s = fleet, successor_s or 0.0
        began_ms = ms(fleet.truth.ready_s + fleet.truth.delays_s[1])
        self.overlap = Overlap(ALL_LEFT if fleet.pruned else began_ms)
        self.queue: list[int] = []
        self.repeats: dict[int, str] = {}
        self.read_up_to = ""
        self.heard_up_to = fleet.saved

    def read(self, now_s: float) -> None:
        del now_s
        new = [entry for name, entry in sorted(self.fleet.log.items()) if name > self.read_up_to]
        for name in self.overlap.handed_on(new):
            del self.fleet.log[name]
        self.read_up_to = max([self.read_up_to, *(entry.id for entry in new)])

    def hear(self, now_s: float) -> None:
        for sequence, heard in self.fleet.b.items():
            if sequence > self.heard_up_to and heard.at_s <= now_s:
                replayed = heard.at_s < self.since_s
                at_s = max(heard.at_s, self.since_s)
                self.overlap.heard(Copy(sequence, heard.event.guild, heard.event.identity, ms(at_s), replayed))
                self.queue.append(sequence)
                self.heard_up_to = sequence

    def settle(self, now_s: float, *, final: bool) -> None:
        settled = self.overlap.settle(ms(now_s), final=final)
        self.repeats |= settled.repeats
        self.fleet.pruned = self.fleet.pruned or final
        for name in settled.gone:
            self.fleet.log.pop(name, None)

    def move_on(self, most: int, *, final: bool) -> None:
        while self.queue and self.queue[0] <= most and (final or self.queue[0] in self.repeats):
            sequence = self.queue.pop(0)
            if sequence in self.repeats:
                self.fleet.log.pop(self.repeats[sequence], None)
            else:
                self.fleet.hand_on(self.fleet.b[sequence].event)
            self.fleet.saved = sequence


def once(fleet: Fleet, events: Iterable[Event]) -> None:
    assert {event.number: fleet.done[event.number] for event in events} == dict.fromkeys(
        (event.number for event in events), 1
    )


@settings(max_examples=150, deadline=None)
@given(truths())
def test_each_event_is_handed_on_once(truth: Truth) -> None:
    each_event_once(truth)


def each_event_once(truth: Truth) -> None:
    fleet = Fleet(truth)
    fleet.run()
    once(fleet, truth.events)
    for guild in {event.guild for event in truth.events}:
        order = [event.at_s for event in fleet.order if event.guild == guild]
        assert order == sorted(order)


def settled(
    entries: Iterable[tuple[str, float]], copies: Iterable[tuple[str, float]], *, replayed: bool = False
) -> dict[int, str]:
    """What repeats what, of one guild, at a FLIP four seconds after READY; times are from READY on.

    `replayed`: a RESUME told the entries.
    """
    overlap = Overlap(ms(BEGAN_S))
    overlap.handed_on([Entry(f"e{n}", 1, who, ms(BEGAN_S + at_s), replayed) for n, (who, at_s) in enumerate(entries)])
    for sequence, (who, at_s) in enumerate(copies):
        overlap.heard(Copy(sequence, 1, who, ms(BEGAN_S + at_s)))
    return overlap.settle(ms(BEGAN_S + 4.0), final=True).repeats


@pytest.mark.parametrize("late", ["entries", "copies"])
def test_of_a_pod_that_stood_still_nothing_is_doubled(late: str) -> None:
    """All that came meanwhile it hears at once, much later than the other one. That they are the same tells order."""
    happened = [(f"~{number}", 0.2 * number) for number in range(1, 6)]
    at_once = [(who, 3.5 + at_s / 1000) for who, at_s in happened]
    found = settled(happened, at_once) if late == "copies" else settled(at_once, happened)
    assert found == {number: f"e{number}" for number in range(5)}


def test_of_pods_that_stood_still_both_nothing_is_doubled() -> None:
    """One is told by a RESUME, and the other one hears what waited in its socket, still later."""
    happened = [(f"~{number}", number / 1000) for number in range(5)]
    found = settled([(who, 3.0 + at_s) for who, at_s in happened], [(who, 3.8) for who, _ in happened], replayed=True)
    assert found == {number: f"e{number}" for number in range(5)}


def test_what_comes_again_some_time_after_is_no_copy() -> None:
    """Two people type, and type again eight seconds later: the first time was before READY, the second is nobody's."""
    before = [("~ann", -4.0), ("~ben", -3.0)]
    assert settled(before, [("~ann", 4.0), ("~ben", 5.0)]) == {}
    assert settled([*before, ("~cem", 0.3)], [("~ann", 4.0), ("~ben", 5.0)]) == {}
