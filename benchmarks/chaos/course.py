"""The course of a soak: chaos while work comes in, then rest, then everybody leaves; with an eye on all of it."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from app.local.waiting import WaitError, wait_until
from benchmarks.chaos.hands import Hands
from benchmarks.chaos.leaks import leaks, queues_left
from benchmarks.chaos.schedule import schedule
from benchmarks.chaos.traffic import Traffic
from benchmarks.growth import Growth

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.chaos.fleet import ChaosFleet
    from benchmarks.chaos.schedule import Deed
    from benchmarks.report import Report

TURN_S = 0.01
LOOK_S, WEIGH_S, TELL_S = 0.5, 2.0, 5.0
DRAIN_S = 150.0
IDLE_S = 20.0
LEAVE_S = 60.0


class Course:
    """One soak, step by step; what was seen on the way stands in its fields."""

    def __init__(self, fleet: ChaosFleet, report: Report, *, seed: int, seconds: float, rate: float) -> None:
        """Prepare; the fleet has its first pod."""
        self.seed, self.seconds = seed, seconds
        self.deeds: list[Deed] = schedule(seed, seconds, fleet.variant.ttl_s)
        self.traffic = Traffic(fleet, seed, rate)
        self.growth = Growth()
        self.hollow = 0
        """Slots that were occupied by nothing, the most at one look."""
        self.leaked: list[str] = []
        """Keys that should not have been there, in words."""
        self.deaf = 0
        """Pods that did not wait for work when there was none."""
        self.drained_s: float | None = None
        """From the end of the chaos until all was done; None when it never was."""
        self.began_s = time.time()
        self._said: list[str] = []
        self.hands = Hands(fleet, self.traffic, self._said.append)
        self._fleet, self._report = fleet, report
        self._next_s = dict.fromkeys((self._look, self._weigh, self._tell), 0.0)

    def chaos(self) -> None:
        """Carry the schedule out, to its end."""
        began_s = time.monotonic()
        self.began_s = time.time()
        waiting = self.deeds[::-1]
        self.traffic.start()
        try:
            while (now_s := time.monotonic() - began_s) < self.seconds:
                while waiting and waiting[-1].at_s <= now_s:
                    self.hands.do(waiting.pop())
                self._turn()
        finally:
            self.hands.calm()
            self.traffic.stop()
        self._report.progress(f"the chaos is over; {len(self.traffic.published)} tasks were accepted")

    def rest(self) -> None:
        """Do what is left, and look at the fleet while it is idle."""
        began_s = time.monotonic()
        if self._comes(self._all_done, DRAIN_S, "everything to be done"):
            self.drained_s = round(time.monotonic() - began_s, 1)
        pods = len(self._fleet.pods)
        self._comes(lambda: self._waiters() == pods, IDLE_S, f"all {pods} pods to wait for work")
        self.deaf = pods - self._waiters()
        self._find_leaks("idle", pods)
        self._weigh()
        view = self._fleet.view()
        self.hollow = max(self.hollow, view.counts.busy if view else 0)

    def leave(self) -> None:
        """Have every pod end in order, and look at what they leave."""
        self.hands.scale(0)
        self._comes(self._nobody, LEAVE_S, "all pods to leave")
        self._find_leaks("after all left", 0)
        self.leaked += [f"after all left: {name} is there" for name in queues_left(self._fleet.broker)]

    # -- conditions

    def _comes(self, condition: Callable[[], bool], timeout_s: float, what: str) -> bool:
        """Wait for a condition, and say so when it does not come."""
        try:
            return wait_until(condition, timeout_s, what=what)
        except WaitError as error:
            self._report.progress(f"{error} (pods: {', '.join(self._fleet.pods)})")
            return False

    def _all_done(self) -> bool:
        self._turn()
        view = self._fleet.view()
        return view is not None and view.work == 0 and self._fleet.all_ready()

    def _waiters(self) -> int:
        view = self._fleet.view()
        return view.counts.waiters if view else 0

    def _nobody(self) -> bool:
        self._turn()
        return not self._fleet.pods

    def _find_leaks(self, when: str, living: int) -> None:
        """Note the keys that should not be there, and stay."""
        with contextlib.suppress(WaitError):
            wait_until(lambda: not leaks(self._fleet.broker, living), IDLE_S, every_s=0.1)
        self.leaked += [f"{when}: {leak}" for leak in leaks(self._fleet.broker, living)]

    # -- all the time

    def _turn(self) -> None:
        self.hands.turn()
        now_s = time.monotonic()
        for deed, every_s in ((self._look, LOOK_S), (self._weigh, WEIGH_S), (self._tell, TELL_S)):
            if now_s >= self._next_s[deed]:
                self._next_s[deed] = now_s + every_s
                deed()
        time.sleep(TURN_S)

    def _look(self) -> None:
        view = self._fleet.view()
        if view is not None:
            self.hollow = max(self.hollow, view.hollow)
            self.traffic.backlog = view.queued

    def _weigh(self) -> None:
        self.growth.look({name: pod.pid for name, pod in self._fleet.pods.items()})

    def _tell(self) -> None:
        view = self._fleet.view()
        state = "Redis is away"
        if view is not None:
            c = view.counts
            state = f"{c.alive} alive of {self.hands.size}, {c.busy} busy, capacity {c.capacity}; "
            state += f"{view.queued} queued, {c.parked} parked, {c.dead} dead"
        said = ", ".join(self._said) or "quiet"
        self._said.clear()
        self._report.progress(f"{len(self.traffic.published)} accepted; {state}; {said}")
