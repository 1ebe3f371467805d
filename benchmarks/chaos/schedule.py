"""What is done to a fleet, and when: a pure function of a seed.

The kinds of deeds are dealt like cards. Each minute is a deck that has every kind in it, so that two minutes try
everything and thirty minutes try it thirty times; the seed decides the order, the instants, the victims and how long
each thing lasts. A schedule names its victims, so the same seed does the same to the same pods at the same instants.
What the pods do meanwhile is their own.

The fleet begins with one pod, which is killed first of all: nobody is left to notice that. Then its size goes through
2 to 12, each once and in the order that the seed gives, and from then on changes between 4 and 12.

Some pods are spared from what ends a process (never from frost and bad networks), so that there is somebody whose
memory can be watched for long: pod 1 after its first death, and pods 2 to 4 as well once the size stays above 3.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal[
    "kill", "kill-most", "kill-child", "restart", "freeze", "refuse", "hold", "swallow", "reset", "slow",
    "scale", "poison", "garbage",
    "redis-restart", "redis-freeze", "flush-scripts", "delete-bells", "cut-all",
]  # fmt: skip

LARGEST, SPARED_SIZE = 12, 4
ROUND_S = 60.0
FIRST_KILL_S = 4.0
FATAL = frozenset({"kill", "kill-most", "kill-child", "restart"})
MOST = 0.7

# Kind -> how often in a minute, and for how long, as shares of the TTL.
DECK: dict[Kind, tuple[int, float, float]] = {
    "kill": (5, 0.0, 1.5),  # until it is started again
    "kill-most": (1, 0.0, 1.5),
    "kill-child": (2, 0.0, 0.0),
    "restart": (2, 0.0, 0.0),
    "freeze": (3, 0.3, 2.0),
    "refuse": (1, 0.3, 2.0),
    "hold": (1, 0.3, 2.0),
    "swallow": (1, 0.3, 2.0),
    "reset": (2, 0.0, 0.0),
    "slow": (1, 0.5, 1.5),
    "scale": (3, 0.0, 0.0),
    "poison": (1, 0.0, 0.0),
    "garbage": (1, 0.0, 0.0),
    "redis-restart": (1, 0.1, 1.0),
    "redis-freeze": (1, 0.2, 1.5),
    "flush-scripts": (1, 0.0, 0.0),
    "delete-bells": (4, 0.0, 0.0),
    "cut-all": (1, 0.0, 0.0),
}
OF_PODS = FATAL | {"freeze", "refuse", "hold", "swallow", "reset", "slow"}


class Deed(NamedTuple):
    """One thing that is done."""

    at_s: float
    """Since the chaos began."""
    kind: Kind
    pods: tuple[int, ...] = ()
    """Numbers of its victims; none when it concerns no pod in particular."""
    lasts_s: float = 0.0
    """Until it is undone."""
    size: int = 0
    """Of a ``scale``: how many pods there shall be."""


def schedule(seed: int, seconds: float, ttl_s: float) -> list[Deed]:
    """All deeds of so many seconds, in their order; ``ttl_s`` is what counts as long."""
    chance = random.Random(seed)
    sizes = _sizes(chance)
    size = 1
    deeds = [Deed(FIRST_KILL_S, "kill", pods=(1,))]
    for kind, at_s in _cards(chance, seconds):
        _, shortest, longest = DECK[kind]
        lasts_s = round(chance.uniform(shortest, longest) * ttl_s, 2)
        if kind == "scale":
            size = next(sizes)
            deeds.append(Deed(at_s, kind, size=size))
        elif kind not in OF_PODS:
            deeds.append(Deed(at_s, kind, lasts_s=lasts_s))
        else:
            spared = 0 if kind not in FATAL else SPARED_SIZE if at_s > _settled_s() else 1
            candidates = range(spared + 1, size + 1)
            if candidates:
                count = math.ceil(len(candidates) * MOST) if kind == "kill-most" else 1
                deeds.append(Deed(at_s, kind, tuple(sorted(chance.sample(candidates, count))), lasts_s))
    return deeds


def _settled_s() -> float:
    """From when on the size stays above that of the spared pods."""
    changes = DECK["scale"][0]
    return -(-(LARGEST - 1) // changes) * ROUND_S


def _sizes(chance: random.Random) -> Iterator[int]:
    first = list(range(2, LARGEST + 1))
    chance.shuffle(first)
    yield from first
    while True:
        yield chance.randint(SPARED_SIZE, LARGEST)


def _cards(chance: random.Random, seconds: float) -> Iterator[tuple[Kind, float]]:
    """Kinds with their instants. The size changes at equal distances, first of all: most deeds need several pods."""
    begin_s = FIRST_KILL_S * 2
    while begin_s < seconds:
        deck: list[Kind] = [kind for kind, (times, _, _) in DECK.items() if kind != "scale" for _ in range(times)]
        chance.shuffle(deck)
        apart = len(deck) // DECK["scale"][0]
        for change in reversed(range(DECK["scale"][0])):
            deck.insert(change * apart, "scale")
        step_s = ROUND_S / len(deck)
        for number, kind in enumerate(deck):
            at_s = begin_s + (number + chance.random()) * step_s
            if at_s < seconds:
                yield kind, round(at_s, 2)
        begin_s += ROUND_S
