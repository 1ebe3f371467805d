"""A shard's connection to Discord: one session over as many sockets, and as many pods, as it takes.

`connection.Connection` is one shard. It holds nothing but its socket and its session: what it hears goes to its `Ear`
at once, and who made it says when it may identify. `plan` decides what follows from the end of a socket, `life` is one
socket from HELLO to its end, `wire` the socket itself, `payloads` what is said on it.

States
======
    waiting --its turn--> connecting --open--> hello --HELLO, a session--> resuming --RESUMED--> ready
                                                     --HELLO, none, the gate--> identifying --READY--> ready
    ready --all guilds came, or their deadline--> settled
    any with a socket --it ended--> reconnecting (paused, when the breaker says so) --> waiting, connecting
    any --a fatal close code, or not ours any more, or closed by its maker--> over

Only who has no session waits: for its turn in the pod before it connects, and for the cluster's gate between HELLO and
IDENTIFY. RESUME asks nobody.

**Invariant**: an event that was heard is counted in the session's sequence, in the same step of the loop; one that was
not is sent again after RESUME. So whoever resumes from the sequence that was *handed on* misses nothing, and repeats
what was heard and not handed on.

Deadlines
=========
To open a socket 10 s, HELLO 10 s, READY or RESUMED 60 s (from the last event that came before it), the guilds of READY
30 s (a guild in an outage comes late or never), the closing handshake 2 s. The first beat is sent after a part of
Discord's interval, by chance; when one has waited for its answer for an interval, the socket is dead (a *zombie*), and
closed with 4000. Beats go on while the gate is waited for, and one more is sent when Discord asks for it, or whoever
holds the connection does. All are counted by the loop's own monotonic clock; a process that was frozen reads what waits
in the socket before it looks at what is due.

The end of a socket
===================
========================  ========================================================================
op 7, also before HELLO   RESUME at once
op 9 true                 RESUME after 1 to 5 s
op 9 false                a new session after 1 to 5 s
4007, 4009                a new session
4004, 4010, 4012 to 4014  over, for all pods: the same would happen to each of them
4011                      over likewise, and a vote for more shards at once
any other end             RESUME: first at the session's own URL, then at the main one; a new session when
                          for three minutes none was answered, of at least three
========================  ========================================================================

Between two sockets it waits longer with each failure on end, up to 30 s, and by chance, so that shards that were cut
off together come back apart. Five ends within 60 s make a pause of 5 minutes, told to the ear.

Closing
=======
`close(code)` ends all that reads before it sends the code, so that no other close can win. 4000 keeps the session for
another pod, 1000 ends it. The library answers for the code that goes out; a socket whose other side takes nothing is
cut after the deadline, which keeps the session as well.

What a crash leaves: a session without a socket, which Discord keeps for a minute or more. Its id, URL and last sequence
are with whoever keeps sessions; a connection itself keeps nothing anywhere.

The token is in IDENTIFY and RESUME and nowhere else: not in what is logged, not in what is raised, not in a repr. It
goes to the main URL and to the resume URL that Discord named, never to one without TLS when the main one has it.
"""
