"""Runs what the state machine wants done: the one place where a worker talks to its fleet.

One driver lives as long as the worker process; consumers and channels come and go with each connection to the broker.
Events come from several threads (the loop, the heartbeat, the pool). A lock makes each event and the commands that
follow from it one unit, so that no JOIN can tell the fleet of a take whose acknowledgement is half way. Only the
delivery to Celery happens outside of it, because the solo pool runs the whole task inside.

The client is the driver's own, with a time limit on every answer: a Redis that is frozen costs a beat, not the worker.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, assert_never

import redis

from throttle import events
from throttle.clock import ServerClock
from throttle.doorkeeper import Doorkeeper
from throttle.heartbeat import Heartbeat
from throttle.scripts import Clash
from throttle.standin import StandIn
from throttle.worker import vocabulary as v
from throttle.worker.machine import step
from throttle.worker.membership import clash_line, leave, send_owed
from throttle.worker.state import State, alone_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from throttle.scripts import Operations, Standing
    from throttle.settings import ThrottleSettings
    from throttle.worker.ports import Host, Line
    from throttle.worker.requeue_machine import GateEvent

logger = logging.getLogger(__name__)

REDIS_ERRORS = (redis.RedisError, OSError)
LOOK_S = 1.0
"""A pod that waits looks for itself so often, in case a bell was lost or a producer rings none."""


def boot_id() -> str:
    """A boot id that no incarnation had before."""
    return os.urandom(4).hex()


class Driver:
    """The membership and the takes of this process. Thread-safe."""

    def __init__(self, operations: Operations, settings: ThrottleSettings) -> None:
        """Prepare; nothing is sent before `beat`."""
        self.operations = operations
        self.settings = settings
        self.state: State = State(settings.pod, alone_from=alone_from(settings.max_deliveries))
        self.pid = os.getpid()
        self.disowned = 0
        """Takes that the fleet gave to others before they ended here."""
        self.line: Line | None = None
        self.host: Host | None = None
        self.refused = ""
        """The other incarnation, once it was seen to live."""
        self.stand_in: StandIn | None = None
        """Beats for a pool whose tasks may hold the lock of this process."""
        self.heartbeat = Heartbeat(self._heartbeat, beat_s=settings.beat_s, ttl_s=settings.ttl_s)
        self.doorkeeper = Doorkeeper(operations.client, operations, self._living_member)
        self.clock = ServerClock()
        self._away: Exception | None = None
        """What the last command of this event about a take ran into, when it was no answer."""
        self._instant_s = random.random() * LOOK_S
        self._lock = threading.RLock()
        self._leaving = threading.RLock()
        self._left: bool | None = None
        """Whether Redis heard of LEAVE, once all was done for that."""
        self._heard = False
        """LEAVE was answered."""

    # -- events

    def decide(self, state: State, event: Any) -> tuple[State, Sequence[Any]]:
        """The state machine; that of another gate knows more events and commands."""
        return step(state, event)

    def feed(self, event: v.Event | GateEvent) -> Exception | None:
        """Take an event in, run what follows from it, and what follows from that.

        Returns the last error of Redis on the way (the machine knows of it already). Raises errors of the channel's own
        connection, for Celery to connect anew.
        """
        deliveries: list[v.Deliver] = []
        broken: Exception | None = None
        failure: Exception | None = None
        with self._lock:
            events: deque[v.Event | GateEvent] = deque([event])
            self._away = None
            while events:
                phase = self.state.phase
                self.state, commands = self.decide(self.state, events.popleft())
                if phase != self.state.phase and self.line is not None:
                    self.line.under_way(self.state.phase)
                for command in commands:
                    match command:
                        case v.Deliver():
                            deliveries.append(command)
                        case v.SendTake() | v.SendBell():
                            broken = self._send(command)
                            if broken is not None:
                                events.append(v.Cut())
                        case _:
                            failure = self._run(command, events) or failure
        if broken is not None:
            raise broken
        for delivery in deliveries:
            if self.line is not None:
                self.line.deliver(delivery)
        return failure

    def start(self) -> None:
        """Begin to beat, and to stand ready as the fleet's doorkeeper."""
        self.heartbeat.start()
        self.doorkeeper.start()

    def beat(self) -> bool:
        """Join or beat. Returns whether the fleet counts this process; raises `redis.RedisError` when Redis is away."""
        failure = self.feed(v.BeatDue(boot_id()))
        if failure is not None:
            raise failure
        return self.state.membership == "living"

    def attach(self, line: Line, host: Host, kept: frozenset[int]) -> None:
        """Work through this channel from now on. `kept`: takes that still run although the channel is new."""
        with self._lock:
            self.line, self.host = line, host
            self.feed(v.Reopened(kept))

    def have_stand_in(self) -> None:
        """From the next beat, which is now: let a process beat for this one while a task holds Python's lock."""
        if self.stand_in is None and StandIn.available:
            self.stand_in = StandIn(self.operations, self.settings.beat_s)
            self.heartbeat.kick()

    def drain(self) -> None:
        """Take nothing more; ends the wait for the bell."""
        self.feed(v.DrainAsked())

    def leave(self) -> bool:
        """End the membership, return what is held (ends that are owed go first), stop the heartbeat. Safe to repeat.

        False: Redis was away to the last; it notices the silence.
        """
        self.heartbeat.stop()
        if self._left is None:  # once: it may take a while
            send_owed(self._owes, self.beat)
        if self.stand_in is not None:
            self.stand_in.stop()
        self.doorkeeper.stop()
        with self._leaving:
            if self._left is None:
                self._left = leave(self._tell_all, self.settings.pod)
        return self._left

    def _tell_all(self) -> bool:
        """The ends that are owed, and LEAVE. Whether Redis heard the last, or need not."""
        self.feed(v.LeaveAsked())
        return self._heard or not self.state.member

    def _owes(self) -> bool:
        """Whether there are ends of which Redis has not heard; waits for those that are being sent."""
        with self._lock:
            return bool(self.state.pending_acks) or any(held.owed for held in self.state.held.values())

    def read_clock(self) -> None:
        """Learn the server's time, before the first beat; each beat tells it again. One round trip."""
        sent_s = time.monotonic()
        seconds, microseconds = self.operations.client.time()
        self.clock.note(seconds * 1000 + microseconds / 1000, (sent_s + time.monotonic()) / 2)

    # -- commands

    def _send(self, command: v.SendTake | v.SendBell) -> Exception | None:
        """Write to the channel's connection, from the loop alone."""
        line = self.line
        if line is None:
            return None
        try:
            if isinstance(command, v.SendTake):
                line.send(*line.take_command(self.operations, command))
            else:
                line.send("BRPOP", self.operations.keys.bell(command.member), self._nap_s())
        except REDIS_ERRORS as error:
            return error
        return None

    def _nap_s(self) -> float:
        """Until this pod's own instant of each second, so that pods do not look for themselves in step."""
        left = LOOK_S - (time.monotonic() - self._instant_s) % LOOK_S
        return round(left if left > LOOK_S / 20 else left + LOOK_S, 3)

    def _run(self, command: v.Command, events: deque[v.Event | GateEvent]) -> Exception | None:
        """Run a command that may fail with Redis, and note what came of it."""
        try:
            if self._away is not None and isinstance(command, v.SendEnd | v.SendEmpty | v.Leave):
                raise self._away  # not one time limit for each of them; and LEAVE returns what has not ended
            self._do(command, events.append)
        except REDIS_ERRORS as error:
            if isinstance(command, v.SendEnd | v.SendEmpty):
                events.append(v.Unsettled(command.id))
                self._away = None if isinstance(error, redis.ResponseError) else error
            if isinstance(command, v.SendEnd | v.SendEmpty | v.Join):
                self.heartbeat.kick()
            return error
        return None

    def _do(self, command: v.Command, then: Callable[[v.Event | GateEvent], None]) -> None:  # noqa: C901, PLR0912 - a line each
        ops = self.operations
        match command:
            case v.SendEnd():
                then(self._end(command))
            case v.SendEmpty(owner, number):
                ops.empty(owner, number)
            case v.Credit(number) if self.line is not None:
                self.line.give_credit(number)
            case v.Join():
                self._join(command, then)
            case v.SendBeat(member):
                then(v.Beaten(member, self._send_beat(member), boot_id()))
            case v.SendDrain(member):
                ops.drain(member)
            case v.Leave(member):
                returned = ops.leave(member)
                self._heard = True
                logger.debug("%s left the fleet; %d messages went back", member, returned)
            case v.Poke(member):
                ops.poke(member)
            case v.Kick() if self.host is not None:
                self.host.wake()
            case v.Watch():
                self.doorkeeper.wanted()
            case v.Disown(take):
                self._disown(take.id)
            case v.Refuse(other):
                self._refuse(other)
            case v.Credit() | v.Kick():
                pass
            case v.SendTake() | v.SendBell() | v.Deliver():
                raise AssertionError(command)
            case _:
                assert_never(command)

    def _end(self, command: v.SendEnd) -> v.Event:
        owner, number, end = command.owner, command.id, command.end
        if end.how == "park":
            parked = self.operations.park(owner, number, end.due_ms)
            return v.Due(number) if parked == "due" else v.Settled(number, parked == "parked")
        if end.how == "ack":
            return v.Settled(number, self.operations.ack(owner, number, keep=command.keep))
        mine = self.operations.back(
            owner, number, end.where, deliveries=end.deliveries, reason=end.reason, text=end.text
        )
        return v.Settled(number, mine)

    def _send_beat(self, member: str) -> Standing:
        sent_s = time.monotonic()
        beat = self.operations.beat(member)
        self.clock.note(beat.server_ms, (sent_s + time.monotonic()) / 2)
        if beat.standing != "lost":
            self.heartbeat.renewed(sent_s)
        return beat.standing

    def _join(self, command: v.Join, then: Callable[[v.Event | GateEvent], None]) -> None:
        sent_s = time.monotonic()
        answer = self.operations.join(
            command.member,
            epoch=command.epoch,
            next_id=command.next_id,
            draining=command.draining,
            running=command.running,
            emptied=command.emptied,
            given_back=command.given_back,
        )
        if isinstance(answer, Clash):
            then(v.Clashed(answer))
        else:
            self.heartbeat.renewed(sent_s)
            then(v.Joined(command.member, answer.epoch))

    def _disown(self, take_id: int) -> None:
        self.disowned += 1
        events.emit(events.DISOWNED)
        if self.disowned == 1:
            logger.warning(
                "take %d had been returned to its queue before it ended here (this pod was taken for dead); its "
                "acknowledgement has no effect. Further ones are counted only, see `celery inspect stats`",
                take_id,
            )

    def _refuse(self, other: str) -> None:
        self.refused = other
        if self.host is not None:
            self.host.stop_worker(clash_line(self.settings, other))

    def _living_member(self) -> str:
        state = self.state
        return state.member if state.may_take else ""

    def _heartbeat(self) -> bool:
        stands = self.beat()
        if self.host is not None and stands:
            self.feed(v.Missing(self.host.forgotten()))
        if self.stand_in is not None:
            self.stand_in.renewed(self.state.member if stands else "")
        return stands
