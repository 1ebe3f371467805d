"""Headroom's library: a fleet of pods that never works itself to the wall.

`throttle.install(app)` gives any Celery app the brake. `Fleet` gives any Python loop the same rule without Celery.
Redis' clock is the only clock that counts; a pod's own may be minutes off.

The model
=========
One truth: what a member holds. A *member* is an incarnation of a pod, `pod#boot`, with a boot id that is new at each
process start. `held:<member>` has an entry for each message it took and for each permit. A pod is *busy* exactly while
it holds something, or for the moment in which it keeps its slot for a TAKE that it announced (1 s at most).

==========  =====  ============  ========  ==============================================================
member      beats  counts in N   may take  its messages
==========  =====  ============  ========  ==============================================================
living      yes    yes           yes       its own
draining    yes    no            no        its own, until done; then it leaves
silent      no     no            no        no beat for a TTL: returned by whoever notices, guard permitting
superseded  no     no            no        a newer incarnation joined after one beat of silence: returned by it
gone        no     no            no        none
==========  =====  ============  ========  ==============================================================

A message is in exactly one place:

=======  ==========================  ====================================================================
message  where                       leaves by
=======  ==========================  ====================================================================
queued   its list                    TAKE, from the head
held     `held:<member>`             ACK, BACK, PARK, or the return of what its member held
parked   zset by due time            due: to the head of its list
dead     stream of dead letters      a person
=======  ==========================  ====================================================================

The rule
========
`N` living members; `capacity = max(1, floor(ratio * N))`. A normal message is admitted to m iff fewer than `capacity`
living members other than m are busy; a critical one iff m is living. Nothing else is remembered: free pods, busy pods
with room, shrinking fleets and both lanes follow from this one line.

**Invariant**: no normal message is admitted while `capacity` other pods are busy. The promise is about admission. A
fleet that shrank, or a pod that woke up, may stand above capacity for a while; nothing is admitted until it fits.

Operations
==========
Each is one Lua script (`lua/<verb>.lua`), atomic, on the server's clock: JOIN, BEAT, TAKE, ACK, EMPTY, BACK, PARK, DRAIN,
LEAVE, PUT; ACQUIRE and COUNTS for code without messages. What a crash leaves, wherever it comes:

* before an operation: what was before it; after it, answer lost or not: the whole of it. Nothing lies in between.
* a pod that dies holding messages falls silent; within a TTL whoever looks returns them to the heads of their queues, in
  one script, in the order in which they were taken. A container that restarts under its name does so in its JOIN, one
  beat after the old one's last.
* a TAKE whose answer was lost is asked again under the same id and answered with the same message.
* a late acknowledgement of a message that was returned meanwhile is answered NOT_YOURS and has no effect.
* a bell that was lost costs at most the second until its waiter looks by itself. Bells may be lost, messages never.

Redis itself
============
The first JOIN ever writes a random *epoch* that members remember. Another epoch means that Redis lost its data: what a
member runs is held again. The same epoch means that it did not: what a member holds but neither runs nor awaits comes
from an older snapshot, was acknowledged, and is dropped.

**Guard**: silence of many looks like silence of Redis. The return of silent members waits one TTL, armed once and not
again while silent members remain: by a JOIN that finds the newest beat older than two beats, by a noticer that had
lost its own beat, or by more than half of four or more vanishing in one look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from throttle.fleet import Fleet, Permit

__all__ = ["Fleet", "Permit"]


def __getattr__(name: str) -> Any:
    """Import the parts on first use: a producer need not pay for what only a worker needs."""
    if name in __all__:
        from throttle import fleet

        return getattr(fleet, name)
    message = f"module 'throttle' has no attribute {name!r}"
    raise AttributeError(message)
