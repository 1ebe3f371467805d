"""What one shard has heard and not yet handed on, and what may be done with it next. No I/O: `delivery` carries it out.

A backlog belongs to one slot under one fence. Its sessions are *chapters*: the first is written to its end before the
next begins.

standing   known from the last answer about the shard
=========  ==========================================================================================
unknown    nothing was answered yet
waits      the target is pending: what the log has is left out, the rest is kept
serves     everything goes on; before the first time the log of the overlap is read to its end
over       the target is over, or the shard was given up: nothing goes on any more, nothing is kept
not held   the shard is not ours (now): everything is kept until `close`
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Literal

from tasks.shards.delivery.calls import MOST_ENTRIES, PRUNED, Batch
from tasks.shards.delivery.chapter import Chapter, Item
from tasks.shards.delivery.identity import guild_of, identity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tasks.shards.delivery.calls import Delivered, Overlapped
    from tasks.shards.delivery.parcels import Writer
    from tasks.shards.gateway.session import Event, Session
    from tasks.shards.vocabulary import Slot
    from throttle.clock import ServerClock

Standing = Literal["unknown", "waits", "serves", "over", "not held"]
MARGIN_S = 2.0
"""What A hears so long after the last READY of B, B hears too: more than two sessions' delays differ."""
MOST_GONE = 256
FEW = 128
"""Events that a shard may always have."""


class Backlog:
    """See the module."""

    def __init__(self, slot: Slot, fence: int, session: Session | None, *, margin_s: float = MARGIN_S) -> None:
        """`session`: the one that will be resumed."""
        self.slot, self.fence = slot, fence
        self.standing: Standing = "unknown"
        self.chapters: deque[Chapter] = deque()
        if session is not None:
            self.chapters.append(Chapter(1, session, session.sequence, told=True))
        self._generation = len(self.chapters)
        self.live = False
        """What is put is heard as it happens; else it is told by a RESUME."""
        self._live_s = inf
        """Since when."""
        self._beat_s = -inf
        """When a beat was last asked for."""
        self._sent_s = self._answered_s = -inf
        """Of the last beat that went out while it was live and was answered."""
        self.calling = False
        """The user's callback has one of its events."""
        self.pause_s = 0.0
        """Nothing is tried before this time."""
        self.hungry = False
        """The log had more than one answer holds."""
        self.events = self.bytes = 0
        self._margin_s = margin_s
        self._began: str = ""
        """The last READY of the pending target, as its token; when it was told of; the one that was answered."""
        self._began_s = 0.0
        self._reached = ""
        self._own_guilds: set[int] = set()
        """Guilds that READY named and whose GUILD_CREATE is still to come: the session makes these for itself."""

    # -- what happens to the shard

    def begin(self, session: Session, guilds: Collection[int], now_s: float) -> None:
        """READY."""
        if self.standing == "over":
            return
        if self.standing == "waits":
            self._forget()  # until the FLIP all of it is the active target's
        if self.chapters:
            self.chapters[-1].ended = True
        self._generation += 1
        beside = self.standing != "serves"
        self.chapters.append(Chapter(self._generation, session, session.sequence, now_s, beside=beside))
        self._own_guilds = set(guilds)
        self.settle(now_s)

    def settle(self, now_s: float) -> None:
        """What is put from now on is heard as it happens."""
        self.live, self._live_s, self._beat_s = True, now_s, -inf

    def answered(self, sent_s: float, now_s: float) -> None:
        """Discord answered a beat: what it had sent until then is here. Not while it tells what a RESUME missed."""
        if self.live and sent_s >= self._live_s:
            self._sent_s, self._answered_s = sent_s, now_s

    def drop(self) -> None:
        """Discord has dropped the session. What was heard in it goes on, unless the target is pending."""
        self.live = False
        if self.chapters:
            self.chapters[-1].ended = True
            if self.standing == "waits":
                self._take(list(self.chapters[-1].items))
                self.chapters[-1].items.clear()

    def put(self, event: Event, now_s: float, *, wanted: bool, late: bool = False) -> bool:
        """Another event of the current session; `late`: it may have come earlier. Returns whether it is urgent.

        Raises:
            ValueError: it belongs to another session.
        """
        if self.standing == "over":
            return False
        chapter = self.chapters[-1] if self.chapters else None
        if chapter is None or chapter.session.id != event.session_id:
            raise ValueError(f"shard {self.slot}: an event of session {event.session_id!r}, not the current one")
        guild = guild_of(event.name, event.data)
        if event.name in ("GUILD_CREATE", "GUILD_DELETE") and guild in self._own_guilds:
            self._own_guilds.discard(guild)  # one that goes before it came: if it comes after that, it is news
            wanted = wanted and event.name == "GUILD_DELETE"
        if not wanted:
            chapter.passed(event.sequence)
            return False
        chapter.items.append(Item(event, guild, identity(event.name, event.data), now_s, late or not self.live))
        self.events += 1
        self.bytes += event.raw_bytes
        return self.standing == "serves"

    def tell_again(self) -> None:
        """Redis may have forgotten the session."""
        for chapter in self.chapters:
            chapter.told = False

    def give_up(self) -> None:
        """Keep nothing, now and later."""
        self._forget()
        self.standing = "over"

    def _forget(self) -> None:
        self.chapters.clear()
        self.events = self.bytes = 0

    def _take(self, items: Collection[object]) -> None:
        for item in items:
            if isinstance(item, Item):
                self.events -= 1
                self.bytes -= item.event.raw_bytes

    # -- questions

    @property
    def oldest_s(self) -> float:
        """When the oldest event in it was heard."""
        events = (item for chapter in self.chapters for item in chapter.items if isinstance(item, Item))
        return next((item.heard_s for item in events), inf)

    @property
    def empty(self) -> bool:
        """Whether nothing is left that may be handed on now."""
        if self.standing in ("over", "waits"):
            return True
        return self.standing == "serves" and not any(chapter.items for chapter in self.chapters)

    @property
    def base(self) -> int:
        """Sequence of the current session up to which everything is handed on."""
        return self.chapters[-1].base if self.chapters else 0

    @property
    def idle(self) -> bool:
        """Whether nothing is to be asked, however long one waits."""
        if self.standing == "over" or not self.chapters:
            return True
        last = self.chapters[-1]
        done = len(self.chapters) == 1 and last.told and not last.ended and not last.items and not last.gone
        return done and self.standing == "serves" and not last.reads and last.overlap is None

    def asks_log(self) -> bool:
        """Whether the log, and what the shard may do, is to be read."""
        if not self.chapters or self.standing == "over":
            return False
        return self.standing in ("unknown", "not held") or self.chapters[0].reads

    # -- what goes on next

    def compare(self, now_s: float, clock: ServerClock) -> None:
        """Find out what repeats entries of the log."""
        if self.chapters and clock.known:
            self.chapters[0].compare(clock.to_ms(now_s), clock.to_ms)

    def batch(self, now_s: float, writer: Writer | None, *, lazy: bool, beside: bool) -> Batch | None:
        """What DELIVER is to carry now; None: nothing needs it.

        Args:
            now_s: monotonic.
            writer: None where a callback has the events.
            lazy: the time for what can wait has come.
            beside: a target is pending, and it is not this one.
        """
        if not self.chapters or self.standing in ("over", "not held") or now_s < self.pause_s:
            return None
        while len(self.chapters) > 1 and not self.chapters[0].items:
            self.chapters.popleft()
        chapter, serves = self.chapters[0], self.standing == "serves"
        parcels = [] if self.standing == "unknown" else chapter.parcels(now_s, writer, serves=serves)
        ended = chapter.ended and len(self.chapters) == 1 and len(parcels) == len(chapter.items)
        reached = self._is_at(now_s, len(parcels)) if beside and serves else ""
        prunes = chapter.prunes and serves and len(chapter.gone) <= MOST_GONE
        urgent = not chapter.told or ended or prunes or (serves and any(parcel.deed != "pass" for parcel in parcels))
        can_wait = bool(parcels or chapter.gone or reached or (beside and serves))
        if not (urgent or (lazy and can_wait)):
            return None
        ready_ago_ms = PRUNED if prunes else -1
        if not chapter.told and chapter.ready_s is not None:
            ready_ago_ms = max(0, round((now_s - chapter.ready_s) * 1000))
        return Batch(
            self.fence, chapter.generation, chapter.session, chapter.base, parcels, tuple(chapter.gone[:MOST_GONE]),
            ended, ready_ago_ms, reached,
        )  # fmt: skip

    def _is_at(self, now_s: float, going: int) -> str:
        """The token of the pending target's last READY, once all that was heard up to a while after it goes on.

        All that was to be heard by then was, when a beat that was sent after it is answered.
        """
        if not self._is_to_say(now_s) or self._sent_s < self._began_s + self._margin_s:
            return ""
        rows: list[Iterable[object]] = [chapter.items for chapter in self.chapters]
        rows[0] = list(rows[0])[going:]
        for row in rows:
            for item in row:
                if isinstance(item, Item):
                    return self._began if item.heard_s > self._answered_s else ""
        return self._began

    def _is_to_say(self, now_s: float) -> bool:
        """Whether the pending target waits for a word."""
        due = self._began and self._began != self._reached and now_s >= self._began_s + self._margin_s
        return bool(due) and self.live and self.standing == "serves"

    def wants_beat(self, now_s: float) -> bool:
        """Whether to send a beat now, whose answer lets it say so; asked while a target is pending beside it."""
        until_s = self._began_s + self._margin_s
        wants = self._is_to_say(now_s) and max(self._sent_s, self._beat_s) < until_s
        if wants:
            self._beat_s = now_s
        return wants

    # -- what was answered

    def delivered(self, batch: Batch, told: Delivered, now_s: float) -> None:
        """A DELIVER was answered."""
        if self.standing == "over":
            return  # it was given up while the answer was under way
        if told.code in ("serves", "waits"):
            self._settled(batch, told, now_s)
        elif told.code == "over":
            self.give_up()
        elif told.code == "not held":
            self.standing = "not held"
        elif told.code == "older" and self.chapters and self.chapters[0].generation == batch.generation:
            self._take(self.chapters.popleft().items)  # it is over in Redis, and all of it was handed on

    def _settled(self, batch: Batch, told: Delivered, now_s: float) -> None:
        if told.code != self.standing:
            self.standing = "serves" if told.code == "serves" else "waits"
        if told.began != self._began:
            self._began, self._began_s = told.began, now_s
        if batch.reached:
            self._reached = batch.reached
        if not self.chapters or self.chapters[0].generation != batch.generation:
            return
        chapter = self.chapters[0]
        chapter.told = True
        if batch.ready_ago_ms == PRUNED:
            chapter.prunes = False
        self._take(chapter.handed_on(told.sequence))
        del chapter.gone[: len(batch.gone)]
        if chapter.ended and not chapter.items and (batch.ended or len(self.chapters) > 1):
            self.chapters.popleft()

    def note_log(self, told: Overlapped) -> None:
        """The log was read."""
        if told.code == "over" or self.standing == "over":
            self.give_up()
            return
        self.standing = "serves" if told.code == "serves" else "waits" if told.code == "waits" else "not held"
        if self.standing == "waits":
            while len(self.chapters) > 1:
                self._take(self.chapters.popleft().items)
        if self.chapters and self.chapters[0].told and self.standing != "not held":
            self.chapters[0].note_log(told)
        self.hungry = len(told.entries) >= MOST_ENTRIES


def size(backlogs: Collection[Backlog]) -> tuple[int, int]:
    """Events in all of them, and their bytes."""
    return sum(backlog.events for backlog in backlogs), sum(backlog.bytes for backlog in backlogs)


def has_room(backlog: Backlog | None, backlogs: Collection[Backlog], most: tuple[int, int]) -> bool:
    """Whether one of them shall take more of what can wait, of so many events and bytes in all.

    Up to half, so that what happens now has room; who has little goes on beside others that have much. None of it waits
    before the FLIP, when nothing of it may leave.
    """
    if backlog is None or backlog.standing in ("waits", "over") or backlog.events < FEW:
        return True
    events, bytes_ = size(backlogs)
    return events < most[0] / 2 and bytes_ < most[1] / 2
