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
Each is one Lua script (`lua/<verb>.lua`), atomic, on the server's clock: JOIN, BEAT, TAKE, ACK, EMPTY, BACK, PARK,
DRAIN, LEAVE, PUT; WATCH for the doorkeeper; KNOCK for the requeue gate; ACQUIRE and COUNTS for code without messages;
DEAD_REQUEUE and DEAD_DROP for a person (`throttle.dead`). What a crash leaves, wherever it comes:

* before an operation: what was before it; after it, answer lost or not: the whole of it. Nothing lies in between.
* a pod that dies holding messages falls silent; within a TTL whoever looks returns them to the heads of their queues,
  in one script, in the order in which they were taken. A container that restarts under its name does so in its JOIN,
  one beat after the old one's last.
* a TAKE whose answer was lost is asked again under the same id and answered with the same message. One that was stuck
  on a connection which was given up may arrive when that id is long done with: it is answered STALE and takes nothing.
* a late acknowledgement of a message that was returned meanwhile is answered NOT_YOURS and has no effect. One that a
  TAKE follows at once travels in that TAKE, and is done first: a task costs one round trip, and between its end and the
  next one there is no moment in which the slot is anybody else's.
* a bell that was lost costs at most the second until its waiter looks by itself. Bells may be lost, messages never.

Redis itself
============
The first JOIN ever writes a random *epoch* that members remember. Another epoch means that Redis lost its data: what a
member runs is held again. The same epoch means that it did not: what a member holds but neither runs nor awaits comes
from an older snapshot. It was acknowledged since, and is dropped; or put back or parked, and goes back again.

**Guard**: silence of many looks like silence of Redis. The return of silent members waits one TTL, armed once and not
again while silent members remain: by a JOIN or BEAT that finds the newest beat older than one and a half, by a noticer
that had lost its own beat, or by more than half of four or more having missed two beats when the first counts as dead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from throttle.fleet import Fleet
    from throttle.permit import Permit
    from throttle.policy import Backoff, Limit, Retries, TimeLimits
    from throttle.worker.stopping import DrainDeadline, draining

__all__ = [
    "Backoff",
    "DrainDeadline",
    "Fleet",
    "Limit",
    "Permit",
    "Retries",
    "TimeLimits",
    "draining",
    "install",
    "still_mine",
]

App = TypeVar("App")


def install(
    app: App,
    *,
    fleet: str | None = None,
    ratio: float | None = None,
    ttl_s: float | None = None,
    critical_queues: Iterable[str] = ("critical",),
    retry_lane: str = "critical",
    gate: str | None = None,
    max_deliveries: int | None = None,
    journal: int | None = None,
    pod: str | None = None,
    time_limits: TimeLimits | None = None,
    retries: Retries | None = None,
) -> App:
    """Give a Celery app the brake: its workers join a fleet, take by the fleet's rule and lose nothing when they die.

    Call it once for an app, before or after its configuration, in the code that workers and producers import: a
    producer's messages then ring a waiting pod at once (others are found within a second). It sends nothing and needs
    no Redis; a worker joins when it starts. A setting that is None comes from the environment, then from its default.

    Args:
        app: the Celery app, whose broker is Redis or Valkey.
        fleet: name of the fleet (`THROTTLE_FLEET`, default).
        ratio: share of the living pods that may be busy with normal work, above 0 and up to 1 (`THROTTLE_RATIO`, 0.8).
        ttl_s: seconds of silence after which a pod counts as dead, at least 3 (`THROTTLE_TTL`, 30).
        critical_queues: queues whose messages may use the pods that are kept free. Workers consume them in addition to
            what they consume otherwise; an app need not declare them.
        retry_lane: "critical": a task that asks to be retried (`Task.retry`, `autoretry_for`) goes to the first
            critical queue, unless the call names another queue. "normal": to the queue that it came from, as in plain
            Celery; for where failures come in floods, or not every pod can run every task. A task may say otherwise
            for itself, `@app.task(retry_lane="normal")`.
        gate: where the rule is applied. "take": in the step that takes the message. "requeue": before a task is handed
            to the pool, from where a denied message goes back to the head of its queue; for other brokers (the fleet
            is then at `REDIS_URL`) and other versions of kombu, with less promised. None: the take, and where this
            version of Celery or kombu was not tried with it the other one, with a warning.
        max_deliveries: how often a message is delivered to pods that die over it, before it becomes a dead letter
            (`THROTTLE_MAX_DELIVERIES`, 5).
        journal: entries that the log of operations keeps, 0 for none (`THROTTLE_JOURNAL`, 0).
        pod: name of this pod, unique in the fleet (`POD_NAME`, the host name).
        time_limits: how long tasks may run that do not say so themselves, also by queue. None: no limit.
        retries: which errors are tried again, how often and after what pauses, also by queue. None: those that a task
            raises as `throttle.errors.TemporaryError`, three times.

    Returns:
        The app. What was installed stands as `app.throttle`. Celery settings that the brake needs (`task_acks_late`,
        `task_reject_on_worker_lost`) or is better with (`worker_prefetch_multiplier=1`) are set where the app leaves
        them at their defaults; the worker says which in its first lines.

    Raises:
        ConfigurationError: a value is not allowed, `install` was called before with other arguments, or this version of
            Celery or kombu does not fit the gate that was asked for (or any).
    """
    from throttle.worker.installing import install as install_on  # noqa: PLC0415 - Celery only where it is asked for

    return install_on(
        app,
        fleet=fleet,
        ratio=ratio,
        ttl_s=ttl_s,
        critical_queues=critical_queues,
        retry_lane=retry_lane,
        gate=gate,
        max_deliveries=max_deliveries,
        journal=journal,
        pod=pod,
        time_limits=time_limits,
        retries=retries,
    )


def still_mine(task: Any) -> bool:
    """Whether the fleet still counts the running task as this pod's. False: the pod was taken for dead meanwhile.

    For a bound task (`bind=True`) to ask, as `throttle.still_mine(self)`, before an effect that must not happen twice.
    One round trip. The answer is true of the moment in which Redis gave it: a fence for effects outside is the
    receiver's to check.

    Raises:
        NotAMember: the task runs without a take (called directly, eagerly, or past the transport).
        redis.RedisError: Redis did not answer; nobody knows.
    """
    from throttle.worker import ownership  # noqa: PLC0415 - Celery only where it is asked for

    return ownership.still_mine(task)


def __getattr__(name: str) -> Any:
    """Import the parts on first use: a producer need not pay for what only a worker needs."""
    if name in ("Fleet", "Permit"):
        from throttle import fleet  # noqa: PLC0415 - the point of this function

        return getattr(fleet, name)
    if name in ("Backoff", "Limit", "Retries", "TimeLimits"):
        from throttle import policy  # noqa: PLC0415 - likewise

        return getattr(policy, name)
    if name in ("DrainDeadline", "draining"):
        from throttle.worker import stopping  # noqa: PLC0415 - Celery only where it is asked for

        return getattr(stopping, name)
    message = f"module 'throttle' has no attribute {name!r}"
    raise AttributeError(message)
