"""Every key of a bot's cluster; a function for each that Python names, the scripts make the others from the namespace.

All begin with `{cluster:<bot>}:`; the braces are one hash tag, so that they lie together in a Redis Cluster.

===================  =========  ==========================================================================
suffix               TTL        holds
===================  =========  ==========================================================================
state                none       hash: epoch, born, n, fence, rev, guard, server, note, stops; must outlive all members
target:active        none       "v total since_ms by", by: votes or person
target:pending       none       likewise
versions             none       zset: versions that have binds, by their total
shard:bind:<v>       none       hash: shard -> "state member fence"
nodes                none       zset: members by when they count as dead (server ms); empty when all have left
node:hb:<member>     TTL        "limit draining load", the heartbeat's value
vote:<n>             120 s      hash: member -> "total rounds at_ms"
peak:<window>        3 TTL      the most members seen in a window of one TTL
identify             2 days     hash: the day's budget, and when each bucket is free
session:<v>          none       hash: shard -> "sequence fence generation id url", for RESUME; goes with the binds
overlap:<v>          30 min     hash: of a pending target, how far its READYs are and what the active one says to them
overlap:<v>:<shard>  30 min     stream: what the active target handed on, for a shard of the pending one
line:<guild>         none       list: events of a guild that are worked on in their order; the head is under way
turn:<guild>         15 min     hash: which task works on it
sim:<v>:<shard>      1 h        a session of a simulated connection
waits:<bucket>       10 s       zset: shards that wait for the gate, in their order
since:<bucket>       10 s       hash: how long each of them is waited for
===================  =========  ==========================================================================
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one bot."""

    bot: str

    def namespace(self) -> str:
        """What all of them begin with, the colon included: KEYS[1] of every operation."""
        return f"{{cluster:{self.bot}}}:"

    def state(self) -> str:
        """Hash: what is true of the whole cluster."""
        return self.namespace() + "state"

    def binds(self, version: int) -> str:
        """Hash: who holds the shards of a target."""
        return f"{self.namespace()}shard:bind:{version}"

    def nodes(self) -> str:
        """Zset: members by when they count as dead."""
        return self.namespace() + "nodes"

    def identify(self) -> str:
        """Hash: the identify budget and the buckets."""
        return self.namespace() + "identify"

    def changed(self) -> str:
        """Channel on which changes are published."""
        return self.namespace() + "changed"

    def simulated(self, version: int, shard: int) -> str:
        """String: a simulated connection has identified."""
        return f"{self.namespace()}sim:{version}:{shard}"
