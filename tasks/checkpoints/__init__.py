"""Checkpoints: how far a long task has come, kept outside of its pod, so that whoever runs it next goes on from there.

One checkpoint belongs to one task id. Its content is small (`CHECKPOINT_MAX_BYTES`) and says where to go on, not what
was done: the work itself stands where the task puts it, in a file or a database, before the checkpoint says so.

=======  ====================================================================================================
state    means
=======  ====================================================================================================
none     nothing was saved, or it was cleared, or it expired
running  opened by a run; that run, or a later one, writes it. Its pod may be dead: the age tells
stopped  the last run ended to be run again: a retry, a soft time limit, a drain
failed   the last run failed; a run under the same id goes on from there
=======  ====================================================================================================

Operations
==========
OPEN    a run begins: it gets a fence above all that were given out before, and what was saved last.
SAVE    status, progress, content; only under the fence that was given out last. Renews the time to live.
CLEAR   the task has succeeded: the checkpoint is gone; under the same condition.
LIST    all that there are, with their age.

**Invariant**: what is stored was written by the run that opened last. Each is one step on the server (a script in
Redis, a transaction in etcd), so a crash leaves what was there before it or all of it. Nothing lies in between.

The fence
=========
It rises with each run of a task, whichever delivery or retry that is, and never repeats, not even after the checkpoint
was cleared, has expired or was lost. Redis: the server's clock in microseconds, or one more than the stored fence where
that is higher. etcd: one more than the revision of the whole store, which every write raises.

The order of OPENs is not the order of deliveries: a pod that is frozen between its take and its OPEN opens last, though
its work was given to another one long ago. So who is refused asks the fleet whether the take is still its own:

====================  ======================================================================================
it is                 the other run is the ghost: open anew, save again, go on
it is not             this run is the ghost: it ends, without a result. Its acknowledgement has no effect
nobody can tell       (the other gate, an app without a fleet, Redis is away) go on and save nothing more: work
                      is done twice rather than not at all. With nothing stored there is no rival: open anew
====================  ======================================================================================

Whose clock
===========
The server's: `last_updated` and the time to live. etcd has no clock that one could ask; the lease of a checkpoint is
renewed by each SAVE, so what has run off it since is the age. The pod's own monotonic clock says when the next save is
due, and how long a store that does not answer is waited for.

The store is away
=================
A task does not fail because its progress cannot be written down, unless it asks for that (`required=True`). One line is
logged for an outage, and what was noted last is saved when the store is back. A run that cannot OPEN within
`PATIENCE_S` begins from the start, since it cannot know better.

Versions
========
The content is wrapped in an envelope with the layout of this module and the task's own version. What does not parse, or
carries another version, older or newer, is no use: the task's `compensate` is called when it has one, and the task
starts anew. The same holds when a task was delivered before and nothing is stored: that has expired.
"""

from __future__ import annotations

from tasks.checkpoints.protocol import (
    CheckpointError,
    CheckpointStore,
    Gone,
    Listed,
    Saved,
    Slot,
    Status,
    StoreAway,
    Superseded,
    TooLarge,
)
from tasks.checkpoints.run import Checkpoint, Limits

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointStore",
    "Gone",
    "Limits",
    "Listed",
    "Saved",
    "Slot",
    "Status",
    "StoreAway",
    "Superseded",
    "TooLarge",
]
