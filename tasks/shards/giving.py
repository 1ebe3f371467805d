"""What a member gives up: told to Redis until it confirms. Pure, a part of `coordinator`.

    closed --RELEASE, again after each SYNC until it is answered--> over
    closed for good by Discord --STOP, again likewise--> RELEASE, as above

What Discord closed for good is told before the shard is given back. So while Redis is away, and until it has answered,
nobody can claim the shard, but by its bind's end. What a crash in between leaves: a bind whose member is dead and no
STOP. Whoever claims it next tries once what this member tried, and says STOP itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tasks.shards import vocabulary as v
from tasks.shards.answers import Stop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.shards.vocabulary import Slot, State

OF_A_TARGET = (4010, 4011)
"""Close codes: with another total it may go well."""
T = TypeVar("T")


def closed(state: State, event: v.Closed) -> tuple[State, list[v.Command]]:
    """A connection has ended for good: the shard is given up."""
    slot, fence, own = event.slot, event.fence, state.owns.get(event.slot)
    if own is None or own.fence != fence:
        return state, []
    state = state._replace(owns=without(state.owns, slot), releasing={**state.releasing, slot: fence})
    if event.code:
        scope = v.scope_of(slot[0]) if event.code in OF_A_TARGET else state.credentials
        state = state._replace(stopping={**state.stopping, slot: Stop(scope, event.code, 0, event.fatal)})
    return state, _tell(state, slot)


def _tell(state: State, slot: Slot) -> list[v.Command]:
    fence, stop, pending = state.releasing[slot], state.stopping.get(slot), state.head.pending
    if stop is None:
        return [v.SendRelease(slot, fence)]
    say: list[v.Command] = [v.SendStop(slot, fence, stop)]
    return say if pending is None or pending.version != slot[0] else [*say, v.SendAbort(slot[0], stop.why)]


def stopped(state: State, slot: Slot) -> tuple[State, list[v.Command]]:
    """STOP was answered: now the shard is given back."""
    if slot not in state.stopping:
        return state, []
    state = state._replace(stopping=without(state.stopping, slot), owed=state.owed - {slot})
    return state, _tell(state, slot)


def released(state: State, slot: Slot) -> State:
    """RELEASE was answered."""
    return state._replace(releasing=without(state.releasing, slot), owed=state.owed - {slot}, sync_fresh=False)


def again(state: State) -> tuple[State, list[v.Command]]:
    """Tell anew what was not answered."""
    commands = [command for slot in state.releasing if slot in state.owed for command in _tell(state, slot)]
    return state._replace(owed=frozenset()), commands


def without(values: Mapping[Slot, T], slot: Slot) -> dict[Slot, T]:
    """All but one."""
    return {key: value for key, value in values.items() if key != slot}
