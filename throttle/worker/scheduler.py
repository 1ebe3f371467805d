# pyright: basic
"""Celery's beat as one of any number: `throttle.install` makes it the scheduler of an app on Redis.

Who leads and what has run is decided in Redis (`throttle.schedule`), when an entry is due by `dues`, what becomes of
missed runs by `entries`. This is the loop between them. A turn waits no longer than answers of Redis may take, and
no error of Redis ends it: a beat without Redis is cut off, says so, and asks again.

=========  =============================================================  =============================================
standing   turns                                                          leaves it by
=========  =============================================================  =============================================
leader     runs what is due; renews its lease three times a lease         an answer that says so; its own clock says
                                                                          that the lease is over
standby    asks when the lease of the leader could be over, and each      an answer that begins a term
           second
cut off    asks again each half second                                    an answer
=========  =============================================================  =============================================

A run is made in two steps. Celery and kombu make the message, on a connection that keeps it (`parcels`): nothing is
published by that, whatever happens. RUN then publishes it and moves the record on. Where RUN's answer is lost, it is
asked again: the record tells whether it was done.

An entry that cannot be published (arguments that cannot be serialized, a queue that is no list) is told of in the log
and moves on to its next due time: it holds up nobody else.
"""

from __future__ import annotations

import heapq
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from celery import beat

from throttle.errors import ConfigurationError, RedisRefused, RedisTooOld, RedisUnreachable
from throttle.schedule import Messages, Ran, Record, Schedule
from throttle.worker import ending
from throttle.worker.connecting import reach
from throttle.worker.dues import moment
from throttle.worker.entries import LATE_S, Entry, Plan, plan, records
from throttle.worker.faults import AWAY
from throttle.worker.installing import one_line
from throttle.worker.parcels import Parcels

if TYPE_CHECKING:
    from throttle.schedule import Led

logger = logging.getLogger(__name__)

Standing: TypeAlias = Literal["leader", "standby", "cut off"]

RETRY_S = 0.5
ASK_S = 1.0
"""How often a standby asks, at the least: a leader that ended in order is replaced within this."""
TRIES = 3
"""How often the same run may fail as if Redis were away, while Redis answers, before the entry is blamed."""


class Clock:
    """The server's clock between two answers, from below: what it says has passed on the server too."""

    def __init__(self) -> None:
        """Knows nothing before the first answer."""
        self._server_us, self._at_s = 0, 0.0

    def set(self, server_us: int) -> None:
        """Take over what an answer said that has just come."""
        self._server_us, self._at_s = server_us, time.monotonic()

    def now_us(self) -> int:
        """Microseconds of the server's clock."""
        return self._server_us + int((time.monotonic() - self._at_s) * 1_000_000)


class Scheduler(beat.Scheduler):
    """Runs the entries of the app's schedule while it leads, and stands by otherwise."""

    Entry = Entry

    def __init__(self, app: Any, **options: Any) -> None:
        """Read the schedule; nothing is sent. Raises `ConfigurationError` (SystemExit under Celery's command line)."""
        ending.if_asked()
        made = getattr(app, "throttle", None)
        with one_line():
            if made is None:
                raise ConfigurationError(
                    f"app {app.main!r} has no brake; allowed is one that throttle.install was given"
                )
            self.settings = made.settings
            super().__init__(app, **{**options, "lazy": False})
        self._boot = secrets.token_hex(4)
        self._redis: Schedule | None = None
        self._parcels = Parcels(app, self.settings.fleet, self.Producer)
        self._clock = Clock()
        self._term = ""
        self._lease_until_s = self._ask_at_s = 0.0
        self._answered_s = float("-inf")
        self._yields_until_s: float | None = None
        self._stood_by = self._told_cut_off = self._in_turn = False
        self._records: dict[str, Record] = {}
        self._queue: list[tuple[int, str]] = []
        self._failed: tuple[str, int, int] = ("", 0, 0)
        _current[:] = [self]

    def setup_schedule(self) -> None:
        """Celery's, without a file: what the code declares is the schedule."""
        self.merge_inplace(self.app.conf.beat_schedule)
        self.install_default_entries(self.entries)

    @property
    def entries(self) -> dict[str, Entry]:
        """What the code declares."""
        return self.data

    @property
    def info(self) -> str:
        """Line of beat's banner."""
        return f"    . schedule -> {len(self.entries)} entries, fleet {self.settings.fleet}"

    @property
    def standing(self) -> Standing:
        """How this beat stands by its own clock; asks nobody."""
        now_s = time.monotonic()
        if self._term and now_s < self._lease_until_s:
            return "leader"
        return "standby" if now_s - self._answered_s <= self.settings.beat_lease_s else "cut off"

    # -- the loop

    def tick(self, *_args: Any, **_options: Any) -> float:
        """One turn; returns the seconds until the next."""
        self._in_turn = True
        try:
            pause_s = self._turn()
        except (*AWAY, RedisUnreachable) as error:
            pause_s = self._cut_off(error)
        finally:
            self._in_turn = False
        return max(0.0, min(pause_s, self.max_interval))

    def _turn(self) -> float:
        if self._redis is None:
            self._redis = self._connect()
        if time.monotonic() >= self._ask_at_s or not self._leads():
            self._ask(self._redis)
        if self._leads():
            self._run_due(self._redis)
        next_s = self._ask_at_s - time.monotonic()
        if self._term and self._queue:
            next_s = min(next_s, (self._queue[0][0] - self._clock.now_us()) / 1_000_000)
        return next_s

    def _connect(self) -> Schedule:
        try:
            operations = reach(self.app, self.settings.model_copy(update={"startup_s": 0.0}))
        except (RedisRefused, RedisTooOld) as error:
            raise SystemExit(f"headroom: {error}") from None
        return Schedule(operations, f"{self.settings.pod}#{self._boot}", self.settings.beat_lease_s)

    def _cut_off(self, error: Exception) -> float:
        if not self._told_cut_off:
            logger.warning("schedule: Redis failed, asking again until it answers: %s", error)
            self._told_cut_off = True
        self._parcels.drop()
        self._ask_at_s = 0.0
        return RETRY_S

    # -- leading

    def _leads(self) -> bool:
        return bool(self._term) and time.monotonic() < self._lease_until_s

    def _ask(self, schedule: Schedule) -> None:
        lease_s, asked_s = self.settings.beat_lease_s, time.monotonic()
        led = schedule.lead(self._term, yields=self._yields(asked_s))
        self._note_answer(led.server_us)
        if led.standing in ("begins", "goes on"):
            if led.standing == "begins" and not self._begin(schedule, led):
                return
            self._lease_until_s, self._ask_at_s = asked_s + lease_s, asked_s + lease_s / 3
            self._yields_until_s = None
            return
        if self._term or not self._stood_by:
            logger.info("schedule: this beat stands by for %s", led.term.rpartition(" ")[0] or "one who remembers it")
        self._term, self._stood_by = "", True
        if led.standing == "yields":
            self._yields_until_s = self._yields_until_s or asked_s + lease_s
        else:
            self._records = {}  # who leads now knows better: what we remember of our own term names runs that were made
        self._ask_at_s = time.monotonic() + min(
            ASK_S, lease_s / 3, led.left_ms / 1000 + 0.005 if led.left_ms else ASK_S
        )

    def _yields(self, now_s: float) -> bool:
        """Whether somebody else may remember what Redis has lost: not for longer than a lease."""
        if not self._stood_by or self._records:
            return False
        return self._yields_until_s is None or now_s < self._yields_until_s

    def _begin(self, schedule: Schedule, led: Led) -> bool:
        """Begin a term. Only where Redis has no records at all, it lost them, and what is remembered counts."""
        settled = records(self.entries, led.records or self._records, led.server_us)
        if not schedule.settle(led.term, settled):
            return False
        logger.info("schedule: this beat leads, with %d entries", len(settled))
        self._term, self._records = led.term, settled
        self._queue = [(record.due_us, name) for name, record in settled.items()]
        heapq.heapify(self._queue)
        return True

    def _note_answer(self, server_us: int) -> None:
        self._clock.set(server_us)
        self._answered_s = time.monotonic()
        if self._told_cut_off:
            logger.info("schedule: Redis answers again")
            self._told_cut_off = False

    # -- running

    def _run_due(self, schedule: Schedule) -> None:
        while self._queue and self._queue[0][0] <= self._clock.now_us() and time.monotonic() < self._ask_at_s:
            name = self._queue[0][1]
            entry, record = self.entries[name], self._records[name]
            todo = plan(entry, record.due_us, self._clock.now_us())
            if todo.missed and self._clock.now_us() - record.due_us > LATE_S * 1_000_000:
                logger.warning(
                    "schedule: %s was missed since %s (catchup %s)", name, moment(record.due_us), entry.catchup
                )
            sent_s = time.monotonic()
            ran = self._run(schedule, entry, record, todo)
            self._note_answer(ran.server_us)
            if ran.outcome == "early":
                return
            if ran.record is None or ran.outcome == "not leading":
                self._term, self._ask_at_s = "", 0.0
                return
            if ran.outcome == "done":
                self._lease_until_s = sent_s + self.settings.beat_lease_s
            self._records[name] = ran.record
            heapq.heapreplace(self._queue, (ran.record.due_us, name))

    def _run(self, schedule: Schedule, entry: Entry, record: Record, todo: Plan) -> Ran:
        """Make the message and run; where that cannot be done, move on without a run."""
        if todo.run_us is not None:
            try:
                messages = self._parcels.make(entry, todo.run_us, moment(self._clock.now_us()))
                ran = self._move(schedule, entry, record, todo, messages)
            except Exception as error:
                if self._is_away(entry, todo.run_us, error):
                    raise
                logger.exception("schedule: %s cannot be published; this run is left out", entry.name)
            else:
                if ran.outcome == "done":
                    logger.info("Scheduler: Sending due task %s (%s)", entry.name, entry.task)
                return ran
        return self._move(schedule, entry, record, todo._replace(run_us=None), Messages())

    def _move(self, schedule: Schedule, entry: Entry, record: Record, todo: Plan, messages: Messages) -> Ran:
        return schedule.run(
            self._term,
            entry.name,
            expected_us=record.due_us,
            due_us=todo.run_us,
            next_us=todo.next_us,
            messages=messages,
        )

    def _is_away(self, entry: Entry, due_us: int, error: Exception) -> bool:
        """Whether Redis is to blame for a run that failed, rather than the entry."""
        if not isinstance(error, AWAY) or "WRONGTYPE" in str(error):
            return False
        name, failed_us, count = self._failed
        count = count + 1 if (name, failed_us) == (entry.name, due_us) else 1
        self._failed = (entry.name, due_us, count)
        return count < TRIES

    # -- the end

    def close(self) -> None:
        """End in order: who leads makes room at once.

        Celery calls this in its handler of SIGTERM, wherever the loop is, and once more when the loop has ended: in the
        middle of a turn it is left to the second call.
        """
        if self._in_turn:
            return
        schedule, term, self._redis, self._term = self._redis, self._term, None, ""
        if schedule is not None:
            try:
                schedule.resign(term)
            except AWAY as error:
                logger.info("schedule: not resigned, the lease runs out by itself: %s", error)
        self._parcels.drop()
        super().close()


_current: list[Scheduler] = []


def standing() -> Standing:
    """How the beat of this process stands, for probes. Asks nobody: it compares two times.

    "cut off": Redis has not answered for a lease (or never); another beat may lead. A beat that stands by is well.
    """
    return _current[0].standing if _current else "cut off"
