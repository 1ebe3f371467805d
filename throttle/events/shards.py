"""Events of a pod that shares a Discord bot's shards; told in the thread of its driver."""

from __future__ import annotations

from throttle.events.words import Event, Metric

GATE = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)

SHARD_TARGET = Event(
    "shard target changed",
    "This pod changed the target of the bot: proposed (its vote was the last that was needed), active, aborted. What a "
    "person wishes for by a command is told by nobody until it is active.",
    ("change", "total"),
    (Metric("counter", "headroom_shard_target_changes_total", "Changes of the target.", ("change",)),),
)
SHARD_CLAIMED = Event(
    "shard claimed",
    "The pod holds a shard, and begins to connect it.",
    ("version", "shard"),
    (Metric("counter", "headroom_shards_claimed_total", "Shards claimed."),),
)
SHARD_READY = Event(
    "shard ready",
    "A shard is connected. `seconds`: since it was claimed.",
    ("version", "shard", "seconds"),
    (Metric("histogram", "headroom_shard_connect_seconds", "From claim to ready.", (), "seconds", GATE),),
)
SHARD_RELEASED = Event(
    "shard released",
    "The pod holds a shard no more: hand over (another pod resumes it), retire (its target is over), failed (its "
    "connection ended for good), lost (another pod has it already, or took this one for dead).",
    ("version", "shard", "how"),
    (Metric("counter", "headroom_shards_released_total", "Shards released.", ("how",)),),
)
SHARD_ROUND = Event(
    "shard round",
    "A round of votes: the pod asked Discord. `why`: start, beat, timer. `answer`: told, away, refused (the token).",
    ("why", "answer"),
    (Metric("counter", "headroom_shard_rounds_total", "Rounds.", ("why", "answer")),),
)
SHARD_VOTED = Event(
    "shard voted",
    "The pod voted, and was answered: none (not enough votes), same, proposed, pending, unknown, budget, guard.",
    ("total", "outcome"),
    (Metric("counter", "headroom_shard_votes_total", "Votes.", ("outcome",)),),
)
IDENTIFY = Event(
    "identify asked",
    "The gate was asked whether a shard may identify: granted, wait, budget (nothing is left for it), unknown (nobody "
    "has asked Discord yet), not held, late (the grant came too late to be used), stopped (Discord closed a shard for "
    "good), away. `seconds`: of a grant, since the shard first asked.",
    ("version", "shard", "answer", "seconds"),
    (
        Metric("counter", "headroom_identify_answers_total", "Answers of the gate.", ("answer",)),
        Metric(
            "histogram", "headroom_identify_wait_seconds", "How long a shard waited to identify.",
            (), "seconds", GATE,
        ),
    ),
)  # fmt: skip
SHARD_OUTGROWN = Event(
    "shard outgrown",
    "The outbox of the pod was full, and the shard whose oldest event waited longest was given up. `events`, `bytes`: "
    "what it had heard and not handed on. Discord sends it again to whoever resumes the session in time.",
    ("version", "shard", "events", "bytes"),
    (
        Metric("counter", "headroom_shards_outgrown_total", "Shards given up for want of room."),
        Metric("counter", "headroom_shard_events_outgrown_total", "Events that they had heard.", (), "events"),
    ),
)
SHARD_SESSION_ENDED = Event(
    "shard session ended",
    "A session cannot be resumed: invalid (Discord said so), closed (with 4007 or 4009), unanswered (for minutes). The "
    "shard identifies, and what it missed is lost.",
    ("version", "shard", "why"),
    (Metric("counter", "headroom_shard_sessions_ended_total", "Sessions that could not be resumed.", ("why",)),),
)
SHARD_FORGOTTEN = Event(
    "shard forgotten",
    "Redis has forgotten what a shard handed on: it lost data, or another server goes on in its place. `how`: part "
    "(`events` of them, wanted or not), session (it knows nothing of the session, and nobody how many). Those that "
    "consumers had taken by then are not lost.",
    ("version", "shard", "how", "events"),
    (
        Metric("counter", "headroom_shard_forgotten_total", "Times that Redis forgot what was handed on.", ("how",)),
        Metric("counter", "headroom_shard_events_forgotten_total", "Events of these.", (), "events"),
    ),
)
