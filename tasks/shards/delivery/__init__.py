"""From what a shard hears to what consumers get: each event once, in its order, whoever holds the shard.

Words
=====
===========  ============================================================================================
session      what Discord keeps of a shard: an id, and a sequence that numbers its events from 1
saved        the sequence up to which a session's events were handed on, in Redis; another pod resumes there
hand on      publish an event for consumers, in the same step that saves its sequence
identity     what makes an event of one session the same as one of another session, see `identity`
copy         the same event as another session hears it
overlap      two targets side by side: each event is heard by a shard of the active and one of the pending one
===========  ============================================================================================

One session
===========
DELIVER (`lua/deliver.lua`) is the only way on. In one step it looks whether the caller holds the shard under its fence,
whether the target serves, leaves out events up to the saved sequence, publishes the others, rings the fleet's bells and
saves the sequence. So

* a call whose answer was lost is sent again: what was done is not done twice;
* a pod that stood still between anything and anything is refused, when it wakes up, if the shard has another holder;
* a pod that dies leaves a saved sequence, and its successor resumes there: what it had heard and not handed on is
  heard again. A successor's events are later than all that was handed on, so order is kept as well;
* a call that was stuck on its way comes after all that its holder did since. Sessions of one holder are counted
  (`generation`); one with an older count is refused. A session that Discord dropped leaves its count behind.

The sequence starts anew with each session, so it is compared only with that of the same session id. A session is saved
when it begins. What nobody wants (events that are routed nowhere) only moves the sequence, four times a second at most.

Two targets
===========
    pending   B's shards hear everything and hand on nothing. For each event that A's shards hand on they write an entry
              into a log, one for each of B's shards: guild, identity, when it was heard
    FLIP      from here DELIVER refuses A: its log is final. B hands on what it heard and A did not hand on

Which of B's events are copies? Both sessions carry the events of one guild in the same order, so A's log and what B
heard since its READY are two windows on one row of events, and all that is to be found is where the second begins
(`overlap`). Identity and order nearly always tell; where a row repeats itself the times of arrival do. Then both rows
are walked in step: an entry and its copy go, together. What is left at the FLIP, of B's: nobody handed it on; of the
log: B is still to hear it, and leaves it out.

An entry goes in the same DELIVER that leaves out its copy and moves B's sequence past it. So a pod that dies anywhere
in it is followed by one that resumes there, and finds the log as it must be for that.

FLIP waits until nothing can be lost by it: each shard of B must be connected and have its session, and each shard of A
that has one must be held, connected, and have handed on all that was to be heard until `MARGIN_S` after the last READY
of B. B tells in Redis that a READY came, A answers in a DELIVER that it is that far. Where a shard of A stays without a
holder, FLIP goes on after the settle deadline; for B it waits until the target is aborted.

That nothing came on a socket does not say that nothing was to be heard: it may be half-open, and what it would have
told since may be before B's READY, so that nobody else has it. So A's word needs a sign: a heartbeat that was sent
after the `MARGIN_S`, and while no RESUME was being told, is answered. The answer comes on the same socket after all
that Discord sent before it. A asks for that beat when it is due (`Holder.beat`), and does not wait for the regular
one:

    told of a READY --MARGIN_S--> a beat goes out --its answer--> all that was put by then goes on --DELIVER--> that far

That costs a round trip to Discord and a quarter of a second, once after the last READY. On a half-open socket no answer
comes: it is a zombie when its beat has waited for an interval (41 s), is resumed, told what it missed, and asked again.
That is within the settle deadline, two minutes. A socket that goes half-open after the answer has nothing that B has
not. A pod that dies between the answer and the DELIVER has said nothing; its successor resumes and asks for itself.

What a session makes for itself is in no row and is not handed on: READY, RESUMED, and the GUILD_CREATE of each guild
that READY named.

Whose clock
===========
Times in the log, and those that B's are compared with, are the server's: a pod says how long ago it heard something.
They decide only where identities cannot. What a RESUME tells, or is read after a standstill (`standstill`), is marked:
of it the times say only that it happened before.

What a crash leaves
===================
====================================  ===========================================================================
before a DELIVER, or before it came   the saved sequence as it was: its events are heard again by a successor
after it came, answered or not        all of it: events published, sequence saved, entries written or taken away
between READY and its DELIVER         no session: a successor identifies
====================================  ===========================================================================

When Redis loses its data, or a replica takes over that had not all of it, what was handed on is lost with its queues.
What was not stays in the pods and goes on as soon as SYNC has told Redis who holds what. Each pod tells DELIVER up to
where its shard's session is handed on, so nothing of it comes twice, and DELIVER answers how much of that Redis knows
nothing of any more; it is counted. A pod that dies in the same moment leaves only what Redis still has: its successor
resumes there, and what came after is handed on again.

DELIVER touches a bot's cluster, queues and a fleet's bells at once. It is the one operation of shards that cannot be
used on a Redis Cluster, where these lie on different nodes.

How it is used
==============
`delivery.Outbox`, in the driver's loop, by who holds the connections; nothing here waits but `open` and `flush`:

    outbox = Outbox(redis_url, operations, writer, holder)   # `writer`: see `parcels`; `holder`: see `holder`
    outbox.begin(pending)              # in the loop; `pending()`: the pending target by the last SYNC, or None
    session = await outbox.open(slot, fence)       # None: IDENTIFY; else RESUME from its sequence
    outbox.began(slot, fence, session, guilds)     # READY (`Ear.began`)
    outbox.put(slot, fence, event)                 # `Ear.heard`
    outbox.settled(slot, fence)                    # `Ear.settled`: what is put from now on is heard as it happens
    outbox.answered(slot, fence, sent_s)           # `Ear.answered`: what Discord had sent by then was put
    outbox.lost(slot, fence)                       # `Ear.lost`: until `settled`, what is put is told by a RESUME
    outbox.dropped(slot, fence)                    # Discord has ended the session (op 9, 4007, 4009)
    await outbox.flush(slot, fence, timeout_s)     # before a hand-over: all that may be handed on is
    outbox.close(slot, fence)                      # forget the shard; what is left in it is dropped here
    await outbox.end()

Whatever comes under a fence that is not the one of `open` is ignored. `Sessions` reads sessions without an outbox.
"""
