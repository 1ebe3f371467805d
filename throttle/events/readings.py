"""Metrics that are no events: read when somebody asks for them."""

from __future__ import annotations

from throttle.events.words import Metric

POD_READINGS = (
    Metric("gauge", "headroom_heartbeat_age_seconds", "Since the last beat that Redis accepted."),
    Metric("gauge", "headroom_loop_stood_seconds", "For how long the main loop has not turned, excuses aside."),
    Metric("gauge", "headroom_places", "Tasks that this pod may run at once."),
    Metric("gauge", "headroom_places_busy", "Of these, taken by a task."),
    Metric("gauge", "headroom_holds", "Messages that this pod holds."),
    Metric("gauge", "headroom_ready", "1 while `/ready` answers 200."),
)
"""Read when somebody asks for the metrics; of this pod alone."""

FLEET_READINGS = (
    Metric("gauge", "headroom_fleet_pods", "Pods of the fleet: living, draining, silent.", ("state",)),
    Metric("gauge", "headroom_fleet_busy_pods", "Living pods that hold something."),
    Metric("gauge", "headroom_fleet_capacity", "Pods that may be busy with normal work."),
    Metric("gauge", "headroom_fleet_waiters", "Pods that are waiting, each for its bell."),
    Metric("gauge", "headroom_fleet_queue_length", "Messages queued where this pod consumes.", ("queue",)),
    Metric("gauge", "headroom_fleet_parked", "Messages that wait until they are due."),
    Metric("gauge", "headroom_fleet_dead_letters", "Messages that wait for a person."),
    Metric("counter", "headroom_fleet_orphans_returned_total", "Messages of dead pods that went back to their queues."),
    Metric("counter", "headroom_fleet_dead_letters_total", "Messages that became dead letters."),
    Metric("counter", "headroom_fleet_requeues_total", "Messages that a denied requeue gate put back."),
    Metric("counter", "headroom_fleet_violations_total", "Tasks that ran without a take."),
)
"""Of the whole fleet, and so only on the pod that is its doorkeeper: a sum over pods stays right."""

SHARD_READINGS = (
    Metric("gauge", "headroom_shards", "Shards that this pod holds: initialising, ready, closing.", ("state",)),
    Metric("gauge", "headroom_shard_lease", "1 while this pod may act for what it holds."),
    Metric("gauge", "headroom_shard_events_waiting", "Events that its shards heard and that are not handed on."),
    Metric("gauge", "headroom_shard_events_waiting_bytes", "Their size, as Discord sent them."),
    Metric("gauge", "headroom_shard_events_oldest_seconds", "How long the oldest of them has waited; 0: none does."),
)
"""Of this pod, where it shares a bot's shards."""

BOT_READINGS = (
    Metric("gauge", "headroom_bot_target", "Total of shards that is wanted: active, pending (0: none).", ("role",)),
    Metric("gauge", "headroom_bot_pods", "Pods that share the shards, draining ones included."),
    Metric("gauge", "headroom_bot_guard_seconds", "For how long the guard still holds."),
    Metric("gauge", "headroom_bot_identifies_left", "Identifies that are left today, as Discord said last."),
)
"""Of the whole bot, and so only on the pod that is its fleet's doorkeeper."""
