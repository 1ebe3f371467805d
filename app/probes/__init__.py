"""What a worker and beat tell about themselves: `/startup`, `/ready`, `/health` and `/metrics` on `PROBE_PORT`.

Each answer is JSON with its reasons, 200 or 503; decided from facts that are there already, so that it takes
milliseconds and neither waits for Redis nor for the loop.

=========  ============================================================  ===================================
path       503 when                                                      what Kubernetes does with it
=========  ============================================================  ===================================
/startup   the pod has not joined its fleet or does not consume yet;     waits; restarts what never comes up
           once it did, never again
/ready     it drains; it does not consume; the broker is away; no beat   shows it; a deployment waits
           was accepted for a TTL; its loop stands for READY_STALL_S;
           messages are queued, there is room, and it took none for
           READY_STALL_S (degraded)
/health    its loop stands for HEALTH_STALL_S                            restarts it
=========  ============================================================  ===================================

A restart brings no Redis back, so `/health` never depends on it. Full disks, burning processors and long tasks turn
none of them.

When a loop stands
==================
The loop of a worker turns about once a second and says so (`turned_s`). For longer without a turn there may be an
excuse, and time that is excused does not count:

* the broker is away (the last beat failed), or the loop is connecting: Celery does that in the loop, until it succeeds
* a task runs in the loop's own thread. On solo each does; on gevent one that never yields. The stack of that thread
  tells, so a long task is none and a deadlock beside it is one.
* nobody looked: the whole process was frozen, or C code kept Python's lock

Threads
=======
A thread of the operating system serves (on gevent too, with a hub of its own there), looks at the loop each second and
owns the metrics; it reads values that other threads replace as a whole, and takes no lock of theirs. Events go to it
through a queue. What asks Redis (`backlog`, a few commands each READY_STALL_S / 6) is an ordinary thread, that is a
greenlet on gevent, because the client is shared with the heartbeat. All of it ends with the process; there is nothing
to crash half way, and nothing is written anywhere.

=============  =====================================================================================================
`verdicts`     facts in, verdicts out: pure
`watching`     gathers the facts of a worker and of beat
`backlog`      whether messages are queued that this pod might take; the fleet's numbers where it is the doorkeeper
`metrics`      Prometheus' metrics from the table in `throttle.events`
`answers`      which path is answered with what
`server`       HTTP, in a thread of the operating system (`throttle.worker.native`)
`installing`   ties it to the application: signals and a bootstep
=============  =====================================================================================================
"""
