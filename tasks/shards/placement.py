"""Which pod is to have which shard: rendezvous hashing with a cap, for shards that nobody holds. Pure.

Every pod computes the same answer from the same view, so they do not run after the same shards; and only shards without
a holder are placed, so what is connected stays where it is. The weight of a pod for a shard is a hash of both (Thaler
and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998); the cap keeps the loads level, as in
"Consistent Hashing with Bounded Loads" (Mirrokni, Thorup, Zadimoghaddam, 2016).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

SPREAD = 1.1
"""A pod holds at most this times the mean, or the mean rounded up."""

UNLIMITED = 1_000_000
"""A pod's limit that is none."""


class Pod(NamedTuple):
    """A pod that may take shards."""

    name: str
    limit: int
    """Shards that it holds at most, of all targets."""


def cap(shards: int, pods: int) -> int:
    """How many of `shards` one of `pods` pods is to hold at most: `max(ceil(mean), floor(1.1 * mean))`."""
    mean = shards / max(1, pods)
    return max(math.ceil(mean), math.floor(SPREAD * mean))


def weight(pod: str, shard: int) -> int:
    """How much a pod is drawn to a shard; the same everywhere and for ever."""
    return int.from_bytes(hashlib.blake2b(f"{pod}|{shard}".encode(), digest_size=8).digest(), "big")


def place(
    total: int,
    held: Mapping[int, str],
    pods: Iterable[Pod],
    others: Mapping[str, int] | None = None,
    handed: Container[int] = (),
) -> dict[int, str]:
    """Shard -> the pod that is to claim it, for each shard of `total` that is not in `held`.

    Args:
        total: shards of the target.
        held: shard -> the name of the living pod that holds it.
        pods: the pods that take shards.
        others: pod -> shards of other targets that it holds; they count towards its limit, not towards the cap.
        handed: shards that were handed over to level the loads: each goes to the least loaded pod.

    Returns:
        Where each goes. By rendezvous up to the cap; where all are full, to the least loaded; a shard is left out when
        every pod is at its limit.
    """
    known, others = {pod.name: pod for pod in pods}, others or {}
    load = Counter(name for name in held.values() if name in known)
    most = cap(total, len(known))
    placed: dict[int, str] = {}
    for shard in range(total):
        if shard in held:
            continue
        room = [name for name in known if load[name] + others.get(name, 0) < known[name].limit]
        below = [name for name in room if load[name] < most]
        if below and shard not in handed:
            chosen = max(below, key=lambda name: weight(name, shard))
        elif room:
            chosen = min(room, key=lambda name: (load[name], -weight(name, shard)))
        else:
            continue
        load[chosen] += 1
        placed[shard] = chosen
    return placed


def surplus(pod: str, held: Mapping[int, str], pods: Iterable[Pod]) -> int | None:
    """The shard that a pod is to hand over because another holds at least two less; None when it is fine as it is.

    It is the one that the pod is drawn to least. Handed to the least loaded, it brings the loads nearer to each other,
    so that handing over comes to an end.
    """
    load = Counter(held.values())
    room = [load[each.name] for each in pods if each.name != pod and load[each.name] < each.limit]
    mine = [shard for shard, name in held.items() if name == pod]
    if not room or len(mine) < min(room) + 2:
        return None
    return min(mine, key=lambda shard: weight(pod, shard))
