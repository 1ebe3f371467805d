"""Events of a pod at work: its takes, its tasks, its beats, its drain, the checkpoints of its tasks."""

from __future__ import annotations

from throttle.events.words import MILLISECONDS, WORK, Event, Metric

ASKED = Event(
    "asked",
    "TAKE was answered, or at the requeue gate a request for a permit.",
    ("seconds", "answer"),
    (
        Metric(
            "histogram", "headroom_take_seconds",
            "From sending TAKE to reading its answer (message, nothing, denied, lost, stale).",
            ("answer",), "seconds", MILLISECONDS,
        ),
    ),
)  # fmt: skip
DENIED = Event(
    "denied",
    "The rule did not admit work of this lane. A pod asks about once a second while it waits.",
    ("lane",),
    (Metric("counter", "headroom_denials_total", "Answers that denied work of a lane.", ("lane",)),),
)
TOOK = Event(
    "took",
    "A message was taken, or let in by the requeue gate, and goes to Celery. `deliveries`: those before that "
    "ended badly, which that gate does not count.",
    ("queue", "lane", "deliveries"),
    (Metric("counter", "headroom_deliveries_total", "Messages taken.", ("queue", "lane")),),
)
TOOK_AGAIN = Event(
    "took again",
    "A message was taken whose earlier deliveries ended badly; told beside `took`.",
    ("queue", "lane", "deliveries"),
    (Metric("counter", "headroom_redeliveries_total", "Messages taken that had been delivered before.",
            ("queue", "lane")),),
)  # fmt: skip
WOKEN = Event(
    "woken",
    "A bell woke this pod and it took a message: from the ring, by the server's clock, to the answer of TAKE.",
    ("seconds",),
    (
        Metric(
            "histogram", "headroom_wakeup_seconds", "From a bell to the message that it was rung for.",
            (), "seconds", MILLISECONDS,
        ),
    ),
)  # fmt: skip
STARTED = Event(
    "started",
    "The pool began a task. `seconds`: since it was sent by a producer with this library, or since it was due, by the "
    "clocks of both machines.",
    ("task", "queue", "seconds"),
    (
        Metric("histogram", "headroom_wait_seconds", "From sending a task, or from when it was due, to its start.",
               ("queue",), "seconds", WORK),
    ),
)  # fmt: skip
ENDED = Event(
    "ended",
    "A task ended here: succeeded, failed, retried, rejected, ignored, lost (its process died), time limit.",
    ("task", "queue", "outcome", "seconds"),
    (
        Metric("counter", "headroom_tasks_total", "Tasks that ended.", ("task", "queue", "outcome")),
        Metric("histogram", "headroom_run_seconds", "How long they ran.", ("task",), "seconds", WORK),
    ),
)
DISOWNED = Event(
    "disowned",
    "A task ended whose message had been given to others: this pod was taken for dead meanwhile.",
    (),
    (Metric("counter", "headroom_disowned_total", "Ends that had no effect."),),
)  # fmt: skip
OVERRAN = Event(
    "overran",
    "A task has run past a limit (soft, hard), and its pool cannot end it.",
    ("kind",),
    (Metric("counter", "headroom_overruns_total", "Tasks that ran past a limit which nothing enforces.", ("kind",)),),
)
BEAT = Event(
    "beat",
    "The pod beat or joined: accepted, refused (it is no member, or another has its name), failed (Redis did not "
    "answer), broken (a fault of this library).",
    ("outcome", "seconds"),
    (
        Metric("counter", "headroom_beats_total", "Beats and joins.", ("outcome",)),
        Metric("histogram", "headroom_beat_seconds", "How long their answers took.", (), "seconds", MILLISECONDS),
    ),
)
DRAIN_BEGAN = Event(
    "drain began",
    "The pod takes nothing more. `cause`: command, SIGTERM, SIGINT, cold shutdown, shutdown. `running`: its tasks.",
    ("cause", "running"),
    (Metric("counter", "headroom_drains_total", "Drains that began.", ("cause",)),),
)
DRAIN_ENDED = Event(
    "drain ended",
    "The pod is dry, or tasks are left over after the deadline. `seconds`: since the drain began. Of a pod that is "
    "left over and dry after all both are told.",
    ("outcome", "seconds"),
    (
        Metric("histogram", "headroom_drain_seconds", "How long drains took.", ("outcome",), "seconds", WORK),
    ),
)  # fmt: skip
CHECKPOINT_LOADED = Event(
    "checkpoint loaded",
    "A run began, and looked how far its task is: found (it goes on there), none (a first run), missing (a later run, "
    "and nothing is stored), unusable (what is stored cannot be gone on from), away (the store does not answer).",
    ("task", "outcome"),
    (Metric("counter", "headroom_checkpoint_loads_total", "Runs that looked.", ("task", "outcome")),),
)
CHECKPOINT_SAVED = Event(
    "checkpoint saved",
    "A run told the store how far it is: saved, away (the store does not answer), refused (another run has opened it). "
    "`seconds`: how long the task waited for that.",
    ("task", "outcome", "size_bytes", "seconds"),
    (
        Metric("counter", "headroom_checkpoint_saves_total", "Saves.", ("task", "outcome")),
        Metric(
            "histogram", "headroom_checkpoint_save_seconds", "How long tasks waited for them.",
            (), "seconds", MILLISECONDS,
        ),
    ),
)  # fmt: skip
CHECKPOINT_COMPENSATED = Event(
    "checkpoint compensated",
    "A task that starts anew undid what a run before had left half done: done, or failed with an error of its own.",
    ("task", "outcome", "reason"),
    (Metric("counter", "headroom_checkpoint_compensations_total", "Calls of `compensate`.", ("task", "outcome")),),
)
