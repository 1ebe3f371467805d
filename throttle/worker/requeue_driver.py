"""Runs what `requeue_machine` wants done. What is shared with the take is `driver`'s.

ACQUIRE and KNOCK go over the driver's own client, under its lock: a request waits for one round trip before its task
starts. Where kombu's own wait cannot include the member's bell, because the queues are on another broker, a thread
waits for it, a second at most.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

from throttle import events
from throttle.worker import requeue_machine as gate
from throttle.worker import vocabulary as v
from throttle.worker.driver import LOOK_S, REDIS_ERRORS, Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from throttle.scripts import Operations
    from throttle.settings import ThrottleSettings
    from throttle.worker.state import State

logger = logging.getLogger(__name__)


class Queues(Protocol):
    """What the driver asks about the queues that this worker consumes."""

    hears_bells: bool
    """Whether they are waited for together with the member's bell, so that the thread need not."""

    def waits_for(self) -> Sequence[str]:
        """Full keys of the normal ones; none where they are not in the fleet's Redis."""
        ...


class GateDriver(Driver):
    """The membership and the permits of this process. Thread-safe."""

    def __init__(self, operations: Operations, settings: ThrottleSettings) -> None:
        """Prepare; nothing is sent before `beat`."""
        super().__init__(operations, settings)
        self.queues: Queues | None = None
        self.put_back = 0
        """Messages that went back to their queues because they were not let in."""
        self._told = 0
        self._shut = threading.Event()
        self._over = threading.Event()
        self._listener = threading.Thread(target=self._listen, name="headroom-bell", daemon=True)

    def start(self) -> None:
        """Begin to beat, and stand ready to wait for bells."""
        super().start()
        self._listener.start()

    def leave(self) -> bool:
        """End the membership with all permits, stop the threads. Safe to repeat."""
        self._over.set()
        self._shut.set()
        return super().leave()

    def decide(self, state: State, event: v.Event | gate.GateEvent) -> gate.Outcome:
        """The state machine of this gate."""
        return gate.step(state, event)

    def request(self, *, critical: bool) -> int | None:
        """A permit for a task that is about to run; None: put its message back and tell by `back`. One round trip.

        Never raises: when Redis does not answer, the task is not let in.
        """
        with self._lock:
            number = self.state.next_id
            self.feed(gate.Requested(critical))
            held = self.state.held.get(number)
            return number if held is not None and held.stage == "emptied" else None

    def back(self) -> None:
        """Note that a message which was not let in is back in its queue: knock from now on, if the door is shut."""
        self.put_back += 1
        self.feed(gate.PutBack())

    def _do(self, command: v.Command | gate.GateCommand, then: Callable[[v.Event | gate.GateEvent], None]) -> None:
        match command:
            case gate.Acquire(member, number, critical):
                sent_s = time.monotonic()
                try:
                    admitted = self.operations.acquire(member, number, critical=critical)
                except REDIS_ERRORS as error:
                    logger.warning("nothing is let in until Redis answers again (%s)", error)
                    then(gate.Unanswered(member, number))
                    self.heartbeat.kick()
                else:
                    told_of(admitted, time.monotonic() - sent_s, critical=critical)
                    then(gate.Acquired(member, number, admitted))
            case gate.Listen():
                if self.queues is not None and not self.queues.hears_bells:
                    self._shut.set()
            case gate.Knock(member):
                told, keys = self.put_back, self.queues.waits_for() if self.queues is not None else ()
                room = self.operations.knock(member, keys, put_back=told - self._told)
                self._told = told
                then(gate.Knocked(member, room))
            case _:
                super()._do(command, then)

    def _end(self, command: v.SendEnd) -> v.Event:
        """Give a permit back. The slot is kept for what kombu fetches next only if there is something to fetch."""
        work = self.queues.waits_for() if self.queues is not None else ()
        mine = self.operations.ack(command.owner, command.id, keep=command.keep, work=work)
        return v.Settled(command.id, mine)

    def _listen(self) -> None:
        """Knock while the door is shut."""
        while not self._over.is_set():
            self._shut.wait()
            self._shut.clear()
            while self.state.shut and not self._over.is_set():
                try:
                    self.feed(gate.KnockDue())
                    if self.state.shut:
                        self._await_bell()
                except Exception:
                    logger.exception("waiting for the bell failed; trying on")
                    self._over.wait(LOOK_S)

    def _await_bell(self) -> None:
        if not self.state.admits:
            self._over.wait(LOOK_S)
            return
        nap_s = min(self._nap_s(), self.settings.beat_s * 0.7)  # the client waits a third of a TTL for an answer
        try:
            self.operations.client.brpop([self.operations.keys.bell(self.state.member)], nap_s)
        except REDIS_ERRORS:
            self._over.wait(LOOK_S)

    def _disown(self, take_id: int) -> None:
        self.disowned += 1
        events.emit(events.DISOWNED)
        if self.disowned == 1:
            logger.warning(
                "permit %d was the fleet's again before its task ended here (this pod was taken for dead). Further "
                "ones are counted only, see `celery inspect stats`",
                take_id,
            )


def told_of(admitted: bool | None, seconds: float, *, critical: bool) -> None:  # noqa: FBT001 - what ACQUIRE answers
    """Tell what ACQUIRE said."""
    word = "lost" if admitted is None else "message" if admitted else "denied"
    events.emit(events.ASKED, seconds, word)
    if word == "denied":
        events.emit(events.DENIED, "critical" if critical else "normal")
