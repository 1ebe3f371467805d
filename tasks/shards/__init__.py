"""Discord shards that organise themselves: how any number of pods agree, through Redis alone, who connects what.

Every pod runs the same coordinator. No pod talks to a pod, there is no leader, and a decision is made where all can
see it: in one Lua script, on the server's clock. Any pod may hold any shard's connection; at most one does.

Words
=====
=========  ==============================================================================================
member     one incarnation of a pod, `pod#boot`: a container restarted under its name owns nothing of before
target     a total of shards with its version `v`: *pending* while its shards connect, then *active*; the one
           before is *old* until its shards are closed
bind       who holds one shard of one target: state, member, fence
fence      rises with each claim in the whole cluster; a write with an old one is refused
lease      the right to act for what one holds. It ends a TTL after the last SYNC was *sent*, on the member's own
           monotonic clock; Redis counts the TTL from its arrival. So a member stops before Redis gives it up
guard      a time in which nothing is claimed and nobody is given up
=========  ==============================================================================================

A bind
======
    (none) --CLAIM--> initialising --SYNC--> ready --RELEASE--> handoff --CLAIM--> initialising
                      ready --its socket is gone while its target is pending--> initialising
                      initialising, ready --its member died--> orphan --CLAIM--> initialising
                      any --RELEASE, the target is old or aborted--> (none)

**Invariant**: at every instant at most one member has a lease and the fence of a bind. CLAIM gives a bind only when
nobody holds it: free, handed back, or of a member that has been silent for a TTL, whose own lease ended before.

Three phases of a new target
============================
1. A vote or a person makes it pending. Each shard of it is claimed and connected while the active ones go on serving.
2. FLIP makes it active, in one script, when every shard of it is ready in the hands of a living member.
3. Members close their shards of the old target one by one. ABORT instead of FLIP: they close the new ones, the old
   stay, and the version is burnt.

Votes
=====
Each member asks Discord for itself and files what it was told, with the number of rounds in which it was told so. A
total becomes pending when more than half of the living want it: more than half of the *quorum floor* too, the most
members that were seen within two TTLs, less those that left in order. So a lone pod after a loss of data is no
majority, and a fleet that was scaled down is. Votes are counted again when the fleet shrinks. One value needs three
rounds, or one where there is no active target yet, or where Discord itself closes connections with 4011. A target that
a person set is not voted away, but for 4011, until the person leaves it to the votes.

Redis and its failures
======================
The state carries an *epoch*, later than any before, and a number `n` that rises with each change of the target.
Members remember both, with the target and the highest fence, and tell them with each SYNC. What is in Redis gives way
to what is newer in a member: after a loss of data the first SYNC writes a later epoch and restores the target from
what it remembers, and whoever remembers more raises it. When nobody remembers a target, numbers begin anew, and the
state says when (*born*): who was away all the while has versions that mean other targets, and what it holds under
them is lost. Then, and when the server is another one than before (its run id), and when more than half of the
members fall silent at one look, the guard is armed for a TTL and two scans: the living tell what they hold before
anybody claims. What a member holds is held again, by the higher fence if two say so. Who had no lease any more gets
none until the guard is over.

While Redis is away everything stays connected; nobody claims, identifies or flips. A lease that ran out gates what is
done with events, not the socket.

What a crash leaves
===================
Each operation is one script: it was done or it was not. A member that dies between CLAIM and its connection leaves a
bind that is `initialising`; it is an orphan a TTL later. One that dies between an identify grant and the identify
leaves one grant unused. One that dies after FLIP leaves old shards that nobody serves; they are dropped with the
member. A pending target whose shards cannot be connected until its deadline is aborted by whoever sees it.

Identify gate
=============
Discord allows one IDENTIFY in 5 s for each bucket (`shard % max_concurrency`) and so many in a day, over all
connections of the bot. IDENTIFY (the script) grants one per bucket in 5.3 s, the lowest shard that waits first and the
active target before the pending one, and counts the day's budget down. A pending target may not touch the reserve; an
active one may, but for the very last. A grant is used within a quarter of a second of its request or not at all.

What Discord closes for good
============================
A close code that would meet every pod is told to all with STOP: under the name of the credentials (a digest of token
and intents), or of the target that Discord does not allow. CLAIM and IDENTIFY refuse what is stopped, so that nothing
is tried once for each pod; 4011 makes votes count at once. It stands in the state until a person says RETRY, until
pods have other credentials, or until the target is over. Who cannot say it, for Redis is away, keeps the shard and says
it when Redis is back, also when Redis has lost its data; only then is the shard given back. Who dies before that leaves
one more try to another.

Notification: each change is published within its script, and members SYNC at once when they hear it. All of them may be
lost: every member SYNCs twice a second anyway, which is beat, scan and look in one script.
"""
