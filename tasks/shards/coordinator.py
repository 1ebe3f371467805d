"""Every decision of a member of a bot's cluster, as one pure function: `step(state, event) -> (state, commands)`.

No clock, no thread, no connection: events carry the time (monotonic seconds). The driver carries commands out and feeds
what came of them back; tests carry them out on a clock of their own, with losses, frost and restarts.

Each answer of SYNC brings a view, and each view is looked at anew from the start (`decide`): what is mine and lost,
what is nobody's and mine to claim, what is to be closed, whether the pending target can be flipped. Nothing is
remembered from one look to the next that the view would tell, so a lost answer costs half a second and nothing else.

- One SYNC is under way at a time, and one CLAIM. A SYNC that is answered renews the lease from the moment it was
  *sent*; not while the guard holds and the lease had run out, for then another member may be the holder.
- A bind that the view calls ours and that we do not know comes from a CLAIM whose answer was lost: it is ours.
- What was given up is told to Redis until it confirms (`giving`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tasks.shards import giving
from tasks.shards import vocabulary as v
from tasks.shards.operations import Hold, Known
from tasks.shards.placement import Pod, place, surplus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.shards.answers import Head, Target
    from tasks.shards.operations import Call, Operations
    from tasks.shards.vocabulary import Own, Slot, State

    Outcome = tuple[State, Sequence[v.Command]]

MORE_SHARDS, USELESS = 4011, (4004, 4012)
"""Close codes: there must be more shards; not even a RESUME succeeds."""
URGENT = 1_000_000
"""Rounds that a vote counts for when Discord itself asks for more shards."""


def step(state: State, event: v.Event) -> Outcome:  # noqa: C901, PLR0911 - one line for each event
    """The state after `event`, and what to do about it, in this order."""
    if state.left:
        return state, ()
    match event:
        case v.Ticked(now_s):
            return _sync(state, now_s, state.numbers.soonest_s if state.hurry else state.numbers.every_s)
        case v.Heard(now_s):
            return _sync(state._replace(hurry=True), now_s, state.numbers.soonest_s)
        case v.SyncAnswered():
            return _synced(state, event)
        case v.Claimed():
            return _claimed(state, event)
        case v.Released(slot):
            return giving.released(state, slot), ()
        case v.Stopped(slot):
            return giving.stopped(state, slot)
        case v.Unanswered(command):
            return _unanswered(state, command), ()
        case v.Opened(slot, fence) | v.Lost(slot, fence):
            return _stands(state, slot, fence, ready=isinstance(event, v.Opened)), ()
        case v.Closed():
            return giving.closed(state, event)
        case v.Told():
            return _told(state, event)
        case v.DrainAsked():
            return state._replace(draining=True, hurry=True), ()


# ---------------------------------------------------------------- SYNC


def _sync(state: State, now_s: float, after_s: float) -> Outcome:
    if state.sync_sent_s is not None or now_s < state.synced_s + after_s:
        return state, ()
    sent = state._replace(
        sync_sent_s=now_s,
        synced_s=now_s,
        hurry=False,
        sync_leased=state.leased(now_s),
        sync_told=state.owns,
        sync_fresh=True,
    )
    return sent, (v.SendSync(),)


def sync_call(state: State, operations: Operations) -> Call:
    """The SYNC that `SendSync` asks for."""
    holds = [Hold(*slot, own.fence, own.ready) for slot, own in state.sync_told.items()]
    return operations.sync(state.known, holds, limit=state.numbers.limit, draining=state.draining, seen=state.head.rev)


def _synced(state: State, event: v.SyncAnswered) -> Outcome:
    sent_s, head = state.sync_sent_s, event.synced.head
    if sent_s is None:
        return state, ()
    few = _too_few(head) and not _too_few(state.head)
    fence = max(head.fence, state.known.fence)
    known = Known(head.epoch, head.n, head.active, head.pending, fence, head.peak, head.born)
    state = state._replace(known=known, head=head, view=event.synced.view or state.view, sync_sent_s=None)
    if state.sync_leased or not head.guard_ms:
        state = state._replace(lease_end_s=sent_s + state.numbers.ttl_s)
    commands: list[v.Command] = []
    if few and state.opinion.total:  # do not wait for the next round
        commands.append(v.SendVote(state.opinion.total, URGENT))
    for slot in event.synced.lost:
        own, told = state.owns.get(slot), state.sync_told.get(slot)
        if own is not None and told is not None and own.fence == told.fence:
            commands.append(v.Close(slot, own.fence, "lost"))
            state = state._replace(owns=giving.without(state.owns, slot))
    state, more = decide(state, event.now_s)
    return state, (*commands, *more)


def _unanswered(state: State, command: v.Needed) -> State:
    match command:
        case v.SendSync():
            return state._replace(sync_sent_s=None)
        case v.SendClaim():
            return state._replace(claiming=False)
        case v.SendRelease(slot) | v.SendStop(slot):
            return state._replace(owed=state.owed | {slot})  # it is sent again after the next SYNC


def _claimed(state: State, event: v.Claimed) -> Outcome:
    state = state._replace(claiming=False, sync_fresh=False)
    commands: list[v.Command] = []
    if not state.leased(event.now_s):
        return state, commands  # it was given long ago, and may be another's by now; what is ours the next view tells
    target = state.target_of(event.version)
    for shard, fence in zip(event.shards, event.fences, strict=False):
        slot = (event.version, shard)
        if fence and target:
            state, opened = _open(state, slot, fence, target)
            commands += opened
        elif fence:  # the target is over by now
            state = state._replace(releasing={**state.releasing, slot: fence})
            commands.append(v.SendRelease(slot, fence))
    return state, commands


def _open(state: State, slot: Slot, fence: int, target: Target) -> tuple[State, list[v.Command]]:
    known = state.known._replace(fence=max(state.known.fence, fence))
    return _owning(state, slot, v.Own(fence))._replace(known=known), [v.Open(slot, target.total, fence)]


def _stands(state: State, slot: Slot, fence: int, *, ready: bool) -> State:
    """A connection is ready; or not any more, which is news while its target is pending: nobody shall rely on it."""
    own, pending = state.owns.get(slot), state.head.pending
    told = ready or (pending is not None and pending.version == slot[0])
    if own is None or own.fence != fence or own.closing or own.ready == ready or not told:
        return state
    return _owning(state, slot, own._replace(ready=ready))._replace(hurry=True)


def _told(state: State, event: v.Told) -> Outcome:
    same = event.total == state.opinion.total
    opinion = v.Opinion(event.total, state.opinion.rounds + 1 if same else 1)
    vote = v.SendVote(event.total, URGENT if _too_few(state.head) else opinion.rounds)
    return state._replace(opinion=opinion, concurrency=event.concurrency), (v.SendBudget(event), vote)


def _too_few(head: Head) -> bool:
    """Whether Discord closed a shard of the active target for there are not enough."""
    active = head.active
    return active is not None and any(
        stop.code == MORE_SHARDS and stop.scope == v.scope_of(active.version) for stop in head.stops
    )


# ---------------------------------------------------------------- a look at the view


def decide(state: State, now_s: float) -> Outcome:
    """What follows from the view as it is."""
    state, commands = giving.again(state)
    if not state.leased(now_s) or state.head.guard_ms:
        return state, commands
    for part in (_adopt, _close_old, _drain, _rebalance, _claim, _conclude):
        state, more = part(state, now_s)
        commands += more
    return state, commands


def _adopt(state: State, _now_s: float) -> Outcome:
    """Take over what a CLAIM gave whose answer was lost, or give it back when its target is over.

    The view must be later than all that we gave up or got.
    """
    commands: list[v.Command] = []
    if state.claiming or not state.sync_fresh:
        return state, commands
    for slot, bind in state.view.binds.items():
        target = state.target_of(slot[0])
        if not bind.held or bind.member != state.member or slot in state.owns or slot in state.releasing:
            continue
        if target:
            state, opened = _open(state, slot, bind.fence, target)
            commands += opened
        else:
            state = state._replace(releasing={**state.releasing, slot: bind.fence})
            commands.append(v.SendRelease(slot, bind.fence))
    return state, commands


def _close_old(state: State, _now_s: float) -> Outcome:
    """Close what belongs to a target that is over: one at a time, as long as a target serves in its place."""
    old = [slot for slot in state.owns if state.target_of(slot[0]) is None]
    aborted = [slot for slot in old if state.head.active and slot[0] > state.head.active.version]
    if any(state.owns[slot].closing for slot in old) and not aborted:
        return state, ()
    return _close(state, aborted or sorted(old)[:1], "retire")


def _drain(state: State, _now_s: float) -> Outcome:
    """Hand everything over, then leave."""
    if not state.draining:
        return state, ()
    if not state.owns and not state.releasing:
        return state._replace(left=True), (v.SendLeave(),)
    return _close(state, state.owns, "hand over")


def _rebalance(state: State, now_s: float) -> Outcome:
    """Hand one shard over, seldom, while nothing else moves and somebody has less."""
    active = state.head.active
    if active is None or state.head.pending or state.draining or now_s < state.rebalanced_s + state.numbers.rebalance_s:
        return state, ()
    held = _held(state, active)
    if any(version != active.version for version in state.view.totals):
        return state._replace(rebalanced_s=now_s), ()  # an old target is being closed, and a while later nothing moves
    if len(held) < active.total:
        return state, ()  # something else moves
    state = state._replace(rebalanced_s=now_s)
    shard = surplus(state.member, held, _pods(state))
    return _close(state, [] if shard is None else [(active.version, shard)], "hand over")


def _claim(state: State, _now_s: float) -> Outcome:
    """Claim what is nobody's and placed here, of the active target before the pending one."""
    useless = any(stop.scope == state.credentials and stop.code in USELESS for stop in state.head.stops)
    if state.draining or state.claiming or useless:
        return state, ()
    for target in (state.head.active, state.head.pending):
        if target is None:
            continue
        held = _held(state, target)
        handed = {s for (n, s), bind in state.view.binds.items() if n == target.version and bind.state == "handoff"}
        placed = place(target.total, held, _pods(state), _elsewhere(state, target), handed)
        mine = tuple(shard for shard, member in placed.items() if member == state.member)
        if mine:
            most = len(mine) + sum(member == state.member for member in held.values())
            return state._replace(claiming=True), (v.SendClaim(target.version, most, mine),)
    return state, ()


def _conclude(state: State, _now_s: float) -> Outcome:
    """Flip the pending target when all of it is ready, abort it when that takes too long."""
    pending, numbers = state.head.pending, state.numbers
    if pending is None:
        return state, ()
    binds = [state.view.binds.get((pending.version, shard)) for shard in range(pending.total)]
    if all(bind and bind.state == "ready" for bind in binds):
        return state, (v.SendFlip(pending.version),)
    rounds = -(-pending.total // state.concurrency)
    allowed_ms = (rounds * numbers.spacing_s + numbers.settle_s) * 1000
    if state.head.active and state.head.now_ms > pending.since_ms + allowed_ms:
        return state, (v.SendAbort(pending.version, f"not ready within {allowed_ms / 1000:.0f} s"),)
    return state, ()


# ---------------------------------------------------------------- words


def _close(state: State, slots: Sequence[Slot] | Mapping[Slot, Own], how: v.How) -> tuple[State, list[v.Command]]:
    commands: list[v.Command] = []
    for slot in tuple(slots):
        own = state.owns[slot]
        if not own.closing:
            state = _owning(state, slot, own._replace(closing=True))
            commands.append(v.Close(slot, own.fence, how))
    return state, commands


def _pods(state: State) -> list[Pod]:
    return [Pod(member.name, member.limit) for member in state.view.members if not member.draining]


def _held(state: State, target: Target) -> dict[int, str]:
    return {s: bind.member for (n, s), bind in state.view.binds.items() if n == target.version and bind.held}


def _elsewhere(state: State, target: Target) -> Counter[str]:
    return Counter(bind.member for (n, _), bind in state.view.binds.items() if n != target.version and bind.held)


def _owning(state: State, slot: Slot, own: Own) -> State:
    return state._replace(owns={**state.owns, slot: own})
