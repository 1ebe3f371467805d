"""Every key of a fleet, one function each.

All of them begin with `<global_keyprefix>{headroom:<fleet>}:`. The braces are one hash tag, so the keys of a fleet lie
together. Members are `pod#boot`. Which keys have a TTL, and why the others must outlive their writer:

========================  ======  ==========================================================================
suffix                    TTL     holds
========================  ======  ==========================================================================
pods:alive                none    zset, living and silent members by when they count as dead; empty when all have left
pods:draining             none    zset, likewise: members that take nothing more and finish what they hold
pods:busy                 none    zset, index of who holds something, written with every change of held
beats, made               none    hashes, of each member: its last beat and TTL, the number of its newest take
names                     none    hash, pod -> its newest incarnation
held:<member>             none    hash, take id -> message: the only truth about what is under way
epoch                     none    random, written once: tells a loss of data from a lost connection
seq                       none    counter of takes
parked, dead              none    messages until they are due; dead letters
guard                     20 TTL  no return of silent members before this time
waiting*, wanted, waited  1 min   who waits for what
rung, coming:<queue>      1 min   bells under way
doorkeeper                1 s     the member that watches for producers that ring no bell
bell:<member>             5 s     list, the bell itself
deliveries*               1 week  how often a message was delivered before, and what ended that
journal                   1 h     log of operations, off unless asked for
stats                     1 week  counters of the fleet, such as violations
schedule:lease            lease   the beat that leads the schedule
schedule:entries          none    hash, entry of the schedule -> its record; what is declared no more is removed
schedule:beats            1 min   zset, beats by when they last asked to lead
task:<id>:checkpoint      1 week  how far a resumable task has come (CHECKPOINT_TTL)
task:checkpoints          1 week  zset, ids of the tasks that have a checkpoint, by when that expires
========================  ======  ==========================================================================
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one fleet behind one prefix (kombu's `global_keyprefix`, '' for none)."""

    fleet: str = "default"
    prefix: str = ""

    def namespace(self) -> str:
        """What all keys of the fleet begin with, the colon included: KEYS[1] of every operation."""
        return f"{self.prefix}{{headroom:{self.fleet}}}:"

    def alive(self) -> str:
        """Zset: living and silent members by the moment at which they count as dead (server ms)."""
        return self.namespace() + "pods:alive"

    def draining(self) -> str:
        """Zset: draining members by the moment at which they count as dead (server ms)."""
        return self.namespace() + "pods:draining"

    def busy(self) -> str:
        """Zset: members that occupy a slot; the score is until when (inf: as long as they hold something)."""
        return self.namespace() + "pods:busy"

    def names(self) -> str:
        """Hash: pod -> its newest incarnation."""
        return self.namespace() + "names"

    def held(self, member: str) -> str:
        """Hash: take id -> entry, what a member holds."""
        return f"{self.namespace()}held:{member}"

    def bell(self, member: str) -> str:
        """List: the member's private bell."""
        return f"{self.namespace()}bell:{member}"

    def epoch(self) -> str:
        """String: written by the first join ever."""
        return self.namespace() + "epoch"

    def guard(self) -> str:
        """String: server ms before which no silent member is returned."""
        return self.namespace() + "guard"

    def parked(self) -> str:
        """Zset: parked entries by due time (server ms)."""
        return self.namespace() + "parked"

    def dead(self) -> str:
        """Stream: dead letters."""
        return self.namespace() + "dead"

    def journal(self) -> str:
        """Stream: the log of operations."""
        return self.namespace() + "journal"

    def stats(self) -> str:
        """Hash: counters of the fleet: violations, requeues, returned (orphans), dead (letters)."""
        return self.namespace() + "stats"

    def schedule_lease(self) -> str:
        """String: the beat that leads the schedule, and since when; Redis ends it."""
        return self.namespace() + "schedule:lease"

    def schedule_entries(self) -> str:
        """Hash: entry of the schedule -> next due time, last one, when that ran, how often, digest (server us)."""
        return self.namespace() + "schedule:entries"

    def schedule_beats(self) -> str:
        """Zset: beats by when they last asked to lead (server ms)."""
        return self.namespace() + "schedule:beats"

    def checkpoint(self, task: str) -> str:
        """Hash: how far a resumable task has come; with etcd the same name there."""
        return f"{self.namespace()}task:{task}:checkpoint"

    def checkpoints(self) -> str:
        """Zset: ids of the tasks that have a checkpoint, by when that expires (server ms)."""
        return self.namespace() + "task:checkpoints"
