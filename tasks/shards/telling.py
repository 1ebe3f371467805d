"""What a member tells of its shards: events (`throttle.events`) as they happen, figures for who asks.

The driver shows what comes in and what goes out, in its loop; nothing is decided here.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from tasks.shards import gate
from tasks.shards import vocabulary as v
from throttle import events

if TYPE_CHECKING:
    from tasks.shards.connection import Waiting
    from tasks.shards.vocabulary import Slot

logger = logging.getLogger(__name__)

Change = Literal["active", "aborted"]
REFUSALS = {gate.NOT_HELD: "not held", gate.NO_BUDGET: "budget", gate.UNKNOWN: "unknown", gate.STOPPED: "stopped"}


class Figures(NamedTuple):
    """How a member stands at one moment."""

    initialising: int
    ready: int
    closing: int
    leased: bool
    active: int
    """Total of the active target; 0 for none."""
    pending: int
    pods: int
    guard_s: float
    identifies_left: int | None
    """As Discord said last; None before it was asked."""
    waiting: Waiting
    """What was heard and is not handed on."""
    oldest_s: float
    """For how long the oldest of it has waited; 0: nothing waits."""


class Teller:
    """Of one member."""

    def __init__(self) -> None:
        """Nothing is held."""
        self._claimed_s: dict[Slot, float] = {}
        self._closing: dict[Slot, str] = {}
        self._left: int | None = None

    def heard(self, event: v.Event, state: v.State) -> None:
        """Something happened, and this is the state after it."""
        match event:
            case v.Opened(slot, fence):
                own = state.owns.get(slot)
                if own is not None and own.fence == fence and own.ready and slot in self._claimed_s:
                    events.emit(events.SHARD_READY, *slot, time.monotonic() - self._claimed_s[slot])
            case v.Released(slot):
                self._released(slot, self._closing.get(slot, "failed"))
            case v.SyncAnswered(_, synced):
                self._proposed(synced.proposed)
            case v.Told():
                self._left = event.remaining
            case _:
                pass

    def does(self, command: v.Command) -> None:
        """This is about to be carried out."""
        match command:
            case v.Open(slot, _, _):
                self._claimed_s[slot] = time.monotonic()
                self._closing.pop(slot, None)
                events.emit(events.SHARD_CLAIMED, *slot)
            case v.Close(slot, _, "lost"):
                self._released(slot, "lost")
            case v.Close(slot, _, how):
                self._closing[slot] = how
            case _:
                pass

    def _released(self, slot: Slot, how: str) -> None:
        self._closing.pop(slot, None)
        if self._claimed_s.pop(slot, None) is not None:  # else it was given back before it was ever opened
            events.emit(events.SHARD_RELEASED, *slot, how)

    def changed(self, change: Change, state: v.State, version: int) -> None:
        """This member changed the target; `state` is from before."""
        target = state.target_of(version)
        events.emit(events.SHARD_TARGET, change, target.total if target else 0)

    def voted(self, total: int, outcome: str) -> None:
        """A vote was answered."""
        events.emit(events.SHARD_VOTED, total, outcome)
        self._proposed(total if outcome == "proposed" else 0)
        if outcome == "budget":
            logger.error("shards: %d shards are refused: today's identifies cannot pay for them", total)

    def _proposed(self, total: int) -> None:
        if total:
            events.emit(events.SHARD_TARGET, "proposed", total)

    def gate(self, slot: Slot, wait_ms: int | None, since_s: float, *, in_time: bool) -> None:
        """The gate answered; None: it did not."""
        if wait_ms == 0 and in_time:
            events.emit(events.IDENTIFY, *slot, "granted", time.monotonic() - since_s)
            return
        if wait_ms is None:
            answer = "away"
        elif wait_ms == 0:
            answer = "late"
        else:
            answer = REFUSALS.get(wait_ms, "wait")
        events.emit(events.IDENTIFY, *slot, answer, None)

    def figures(self, state: v.State, waiting: Waiting) -> Figures:
        """How the member stands. From any thread."""
        now_s = time.monotonic()
        owns, head = state.owns.values(), state.head
        closing = sum(own.closing for own in owns)
        ready = sum(own.ready and not own.closing for own in owns)
        return Figures(
            initialising=len(owns) - ready - closing,
            ready=ready,
            closing=closing,
            leased=state.leased(now_s),
            active=head.active.total if head.active else 0,
            pending=head.pending.total if head.pending else 0,
            pods=len(state.view.members),
            guard_s=head.guard_ms / 1000,
            identifies_left=self._left,
            waiting=waiting,
            oldest_s=max(0.0, now_s - waiting.oldest_s),
        )
