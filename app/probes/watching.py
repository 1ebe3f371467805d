"""Gathers the facts about a worker and about beat; the loops say that they turn, the probes' thread looks each second.

Every value is written by one thread and replaced as a whole, so nobody waits for anybody.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from app.probes.verdicts import Facts
from throttle.worker import native

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from app.probes.backlog import Backlog, Fleet
    from app.probes.metrics import Reading
    from tasks.shards.telling import Figures

TURN_S = 1.0
"""A loop that runs says so about this often."""
SLOW_S = 2.0
"""A loop that has not turned for so long is looked at."""
BLINK_S = 5.0
"""Nobody looked for longer than this: the whole process stood, not the loop."""
TASK = ("celery/app/trace.py", "trace_task")
"""The function of Celery's in which a task runs: its file and its name."""


class Driver(Protocol):
    """What is asked of the library's driver: its state, and its heartbeat."""

    state: Any
    heartbeat: Any
    stand_in: Any
    settings: Any
    doorkeeper: Any


class Shards(Protocol):
    """What is asked of the driver of a bot's shards."""

    turned_s: float

    def figures(self) -> Figures:
        """How the pod stands."""
        ...


class Loop:
    """How long a loop has not turned, without the time for which there was an excuse."""

    def __init__(self, thread: int) -> None:
        """Of the thread with this number, which turns now."""
        self.thread = thread
        self.turned_s = self.thread_turned_s = self._looked_s = self._excused_s = time.monotonic()
        self.in_task = False
        self.at = ""

    def turn(self, *, until_s: float = 0.0) -> None:
        """It turns, and need not again before `until_s` seconds from now."""
        self.turned_s = self.thread_turned_s = time.monotonic() + until_s

    def turn_of_thread(self) -> None:
        """Its thread turns, whatever the loop does: on gevent the two are not the same."""
        self.thread_turned_s = time.monotonic()

    def look(self, now_s: float, *, excused: bool) -> None:
        """Note an excuse, if there is one. From any thread of those that serve."""
        if excused or now_s - self._looked_s > BLINK_S:
            self._excused_s = now_s
        self._looked_s = now_s
        self.in_task = False
        if now_s - self.turned_s < SLOW_S:
            return
        frame = native.current_frames().get(self.thread)
        self.at, runs_task = place(frame)
        # on gevent the thread may turn, and run tasks, while the loop itself stands
        self.in_task = runs_task and now_s - self.thread_turned_s >= SLOW_S
        if self.in_task:
            self._excused_s = now_s

    def stood_s(self, now_s: float) -> float:
        """Seconds without a turn or an excuse."""
        stood_s = now_s - max(self.turned_s, self._excused_s)
        return stood_s if stood_s >= SLOW_S else 0.0


def place(frame: FrameType | None) -> tuple[str, bool]:
    """Where a thread is (its innermost line), and whether it runs a task."""
    at, runs_task = "", False
    while frame is not None:
        code = frame.f_code
        at = at or f"{code.co_filename}:{frame.f_lineno} {code.co_name}"
        runs_task = runs_task or (code.co_name == TASK[1] and code.co_filename.endswith(TASK[0]))
        frame = frame.f_back
    return at, runs_task


class WorkerWatch:
    """The facts of a worker. Its bootstep tells it what the consumer does."""

    role = "worker"

    def __init__(
        self, find_driver: Callable[[], Driver | None], find_shards: Callable[[], Shards | None] = lambda: None
    ) -> None:
        """In the worker's main thread, before it has joined anything; there are drivers once it has."""
        self.loop, self.loop_of_shards = Loop(native.thread_number()), Loop(0)
        self._find_driver, self._find_shards = find_driver, find_shards
        self.backlog: Backlog | None = None
        self.places: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Places of the pool, and those that are taken."""
        self.started = self.consuming = False
        self.connecting = 0
        self._in_task_s = float("-inf")

    @property
    def driver(self) -> Driver | None:
        """Who speaks with the fleet; None until the pod has joined it."""
        return self._find_driver()

    def turn(self) -> None:
        """Its loop turns, and consumes."""
        self.loop.turn()
        self.started = True

    def look(self, now_s: float) -> None:
        """See whether the loop turns."""
        waits = bool(self.connecting) or not self.started or self.broker_away
        self.loop.look(now_s, excused=waits)
        shards = self._find_shards()
        self.loop_of_shards.turned_s = shards.turned_s if shards is not None else now_s
        self.loop_of_shards.look(now_s, excused=self.loop.in_task)  # which, on gevent, holds that up as well

    @property
    def broker_away(self) -> bool:
        """The last beat was not answered."""
        driver = self.driver
        return driver is not None and driver.heartbeat.away

    def facts(self, now_s: float) -> Facts:
        """What is known now."""
        self.look(now_s)
        driver, backlog = self.driver, self.backlog
        if driver is None:
            return Facts(member=False)
        state, ttl_s = driver.state, driver.settings.ttl_s
        if self.loop.in_task:
            self._in_task_s = now_s
        stand_in = driver.stand_in
        return Facts(
            started=self.started,
            member=state.membership in ("living", "suspect"),
            consuming=self.consuming,
            draining=state.drain or state.membership == "left",
            broker_away=self.broker_away,
            beat_age_s=driver.heartbeat.age_s,
            ttl_s=ttl_s,
            stood_s=self.loop.stood_s(now_s),
            stands_in=self.loop.at,
            shards_stood_s=self.loop_of_shards.stood_s(now_s),
            in_task=now_s - self._in_task_s < ttl_s / 3,  # after it the process' own next beat is on its way
            stand_in=stand_in is not None and stand_in.pid is not None,
            untaken_s=backlog.untaken_s(now_s) if backlog is not None else 0.0,
        )

    def details(self) -> dict[str, Any]:
        """What else a person wants to know in an answer."""
        driver = self.driver
        if driver is None:
            return {}
        return {"fleet": driver.settings.fleet, "member": driver.state.member, "holds": len(driver.state.held)}

    def readings(self, now_s: float) -> dict[str, Sequence[Reading]]:
        """Of this pod; of the fleet where it is the doorkeeper."""
        driver, (places, taken) = self.driver, self.places()
        found = {"headroom_loop_stood_seconds": self.loop.stood_s(now_s)}
        if driver is not None:
            found |= {
                "headroom_heartbeat_age_seconds": driver.heartbeat.age_s,
                "headroom_places": places,
                "headroom_places_busy": min(taken, places),
                "headroom_holds": len(driver.state.held),
            }
        fleet = self.backlog.fleet if self.backlog is not None else None
        shards = self._find_shards()
        return {
            **{name: [((), float(value))] for name, value in found.items()},
            **(fleet_readings(fleet) if fleet else {}),
            **(shard_readings(shards.figures(), keeps_door=fleet is not None) if shards else {}),
        }


class BeatWatch:
    """The facts of beat, which belongs to no fleet: whether it looks at its schedule, and whether Redis answers."""

    role = "beat"

    def __init__(self) -> None:
        """In beat's main thread, before its first look."""
        self.loop = Loop(native.thread_number())
        self.started = self.broker_away = False

    def turn(self, pause_s: float) -> None:
        """It has looked at the schedule, and looks again after a pause."""
        self.started = True
        self.loop.turn(until_s=pause_s)

    def look(self, now_s: float) -> None:
        """See whether the loop turns."""
        self.loop.look(now_s, excused=self.broker_away or not self.started)

    def facts(self, now_s: float) -> Facts:
        """What is known now."""
        self.look(now_s)
        return Facts(
            started=self.started,
            consuming=True,
            broker_away=self.broker_away,
            stood_s=self.loop.stood_s(now_s),
            stands_in=self.loop.at,
        )

    def details(self) -> dict[str, Any]:
        """Nothing more."""
        return {}

    def readings(self, now_s: float) -> dict[str, Sequence[Reading]]:
        """Its loop alone."""
        return {"headroom_loop_stood_seconds": [((), self.loop.stood_s(now_s))]}


def fleet_readings(fleet: Fleet) -> dict[str, Sequence[Reading]]:
    """The fleet's numbers as readings."""
    counts, stats = fleet.counts, fleet.stats
    single = {
        "headroom_fleet_busy_pods": counts.busy,
        "headroom_fleet_capacity": counts.capacity,
        "headroom_fleet_waiters": counts.waiters,
        "headroom_fleet_parked": counts.parked,
        "headroom_fleet_dead_letters": counts.dead,
        "headroom_fleet_orphans_returned_total": stats.get("returned", 0),
        "headroom_fleet_dead_letters_total": stats.get("dead", 0),
        "headroom_fleet_requeues_total": stats.get("requeues", 0),
        "headroom_fleet_violations_total": stats.get("violations", 0),
    }
    several: dict[str, Sequence[Reading]] = {}
    states = {"living": counts.alive, "draining": counts.draining, "silent": counts.silent}
    several["headroom_fleet_pods"] = [((state,), float(n)) for state, n in states.items()]
    several["headroom_fleet_queue_length"] = [((queue,), float(n)) for queue, n in fleet.queued.items()]
    return {**{name: [((), float(value))] for name, value in single.items()}, **several}


def shard_readings(figures: Figures, *, keeps_door: bool) -> dict[str, Sequence[Reading]]:
    """A pod's shards as readings, and what is true of the whole bot on the doorkeeper alone."""
    states = {"initialising": figures.initialising, "ready": figures.ready, "closing": figures.closing}
    found: dict[str, Sequence[Reading]] = {
        "headroom_shards": [((state,), float(n)) for state, n in states.items()],
        "headroom_shard_lease": [((), float(figures.leased))],
        "headroom_shard_events_waiting": [((), float(figures.waiting.events))],
        "headroom_shard_events_waiting_bytes": [((), float(figures.waiting.bytes))],
        "headroom_shard_events_oldest_seconds": [((), figures.oldest_s)],
    }
    if keeps_door:
        totals = {"active": figures.active, "pending": figures.pending}
        found["headroom_bot_target"] = [((role,), float(n)) for role, n in totals.items()]
        found["headroom_bot_pods"] = [((), float(figures.pods))]
        found["headroom_bot_guard_seconds"] = [((), figures.guard_s)]
        if figures.identifies_left is not None:
            found["headroom_bot_identifies_left"] = [((), float(figures.identifies_left))]
    return found
