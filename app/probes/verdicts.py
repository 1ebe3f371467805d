"""What a probe answers, decided from facts alone: no clock, no connection.

The first reason is the weightiest; its word is the state of the whole answer.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Probe = Literal["startup", "ready", "health"]


class Facts(NamedTuple):
    """What is known of a worker (or of beat, which has no fleet) at one instant."""

    started: bool = False
    """It has joined its fleet and consumed; beat has looked at its schedule."""
    member: bool = True
    """The fleet counts it, draining or not, as far as it knows."""
    consuming: bool = False
    draining: bool = False
    broker_away: bool = False
    """The last word that was sent to Redis was not answered."""
    beat_age_s: float = 0.0
    """Since the last beat that Redis accepted was sent."""
    ttl_s: float = 30.0
    stood_s: float = 0.0
    """For how long the loop has not turned, excused time left out."""
    stands_in: str = ""
    """Where, if it does."""
    shards_stood_s: float = 0.0
    """For how long the loop of a bot's shards has not turned, where it has any."""
    in_task: bool = False
    """A task occupies the loop's thread."""
    stand_in: bool = False
    """Another process beats while a task holds this one up."""
    untaken_s: float = 0.0
    """For how long messages have been queued that this pod was free to take, without taking any."""


class Limits(NamedTuple):
    """From when on a pod counts as hung."""

    ready_stall_s: float
    health_stall_s: float


class Reason(NamedTuple):
    """Why a probe says no."""

    state: str
    text: str


class Verdict(NamedTuple):
    """What a probe answers."""

    probe: Probe
    reasons: tuple[Reason, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the answer is 200."""
        return not self.reasons

    def body(self) -> dict[str, Any]:
        """What is sent as JSON."""
        state = self.reasons[0].state if self.reasons else "ok"
        return {"probe": self.probe, "ok": self.ok, "state": state, "reasons": [r.text for r in self.reasons]}


def startup(facts: Facts) -> Verdict:
    """Whether it has come up."""
    if facts.started:
        return Verdict("startup")
    if not facts.member:
        return Verdict("startup", (Reason("starting", "it has not joined its fleet yet"),))
    return Verdict("startup", (Reason("starting", "it has joined its fleet, and does not consume yet"),))


def ready(facts: Facts, limits: Limits) -> Verdict:
    """Whether it takes work, or would if there were any."""
    if not facts.started:
        return Verdict("ready", startup(facts).reasons)
    found: list[Reason] = []
    if facts.draining:
        found.append(Reason("draining", "it drains: it takes nothing more and finishes what runs"))
    if facts.broker_away:
        found.append(Reason("broker away", "Redis does not answer"))
    if facts.stood_s >= limits.ready_stall_s:
        found.append(_standing(facts))
    if facts.shards_stood_s >= limits.ready_stall_s:
        found.append(_shards_standing(facts))
    if not facts.consuming:
        found.append(Reason("not consuming", "it has no connection to take messages from"))
    if not facts.member:
        found.append(Reason("not a member", "the fleet does not count it (any more); it joins again"))
    beaten_for = facts.in_task and facts.stand_in
    if facts.beat_age_s > facts.ttl_s and not beaten_for:
        text = f"its last beat was {facts.beat_age_s:.0f} s ago; after {facts.ttl_s:g} s it counts as dead"
        found.append(Reason("silent", text))
    if facts.untaken_s >= limits.ready_stall_s:
        text = f"messages are queued, there is room for them, and it has taken nothing for {facts.untaken_s:.0f} s"
        found.append(Reason("degraded", text))
    return Verdict("ready", tuple(found))


def health(facts: Facts, limits: Limits) -> Verdict:
    """Whether it would be better off restarted."""
    if facts.started and facts.stood_s >= limits.health_stall_s:
        return Verdict("health", (_standing(facts),))
    if facts.started and facts.shards_stood_s >= limits.health_stall_s:
        return Verdict("health", (_shards_standing(facts),))
    return Verdict("health")


def _standing(facts: Facts) -> Reason:
    where = f", in {facts.stands_in}" if facts.stands_in else ""
    return Reason("standing", f"its loop has stood still for {facts.stood_s:.0f} s{where}")


def _shards_standing(facts: Facts) -> Reason:
    return Reason("shards standing", f"the loop of its shards has stood still for {facts.shards_stood_s:.0f} s")
