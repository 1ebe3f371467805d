"""What follows when a socket has ended: which session, which address, after how long, or that it is over. Pure.

`Plan` is one shard's; it takes the end of each socket and answers what to do next. Nothing here sleeps or connects: the
time comes with each call, chance from whoever makes it.

Session and address
    A session is kept as long as Discord may know it: it goes with op 9 `false`, with the close codes that say so, and
    when for `resumable_s` since it last stood no RESUME was answered, of at least `unanswered`. Discord keeps a session
    for a few minutes, and is known to reset each RESUME for a minute and a half; what the session missed would be lost
    with it, and a RESUME costs no identify. A socket that cannot even be opened says nothing of the session: a network
    that is away for a while costs no identify. The resume URL is tried once; if that fails the session is resumed at
    the main URL, until it stands again.

Waiting
    At once after op 7, 1 to 5 s after op 9, else longer with each failure on end, each time by chance between a half
    and the whole of it. After op 9 `true` the longer of both.

Breaker
    Five sockets that ended within a minute of the first of them make a pause of five minutes. Then one is tried: when
    it ends within a minute as well, the pause begins anew, so that a shard that loops costs a dozen identifies an hour
    and not the day's. Only what could have cost something counts: not a socket that was never open, not one that
    Discord dropped while the shard still waited for the gate, and not a RESUME without an answer whose session is kept.
    A session that is given up so soon after another one makes the same pause.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple

from tasks.shards.gateway.payloads import after_close, may_follow, meaning

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.shards.gateway.session import Session

How = Literal["unreachable", "silent", "asked", "invalid", "try again", "closed", "zombie", "garbled", "not ours"]
"""How a socket ended: it could not be opened; a deadline passed; op 7; op 9 false; op 9 true; it was closed or lost;
no beat was answered; what came made no sense; the gate said that the shard is another pod's."""

Dropped = Literal["invalid", "closed", "unanswered"]
"""Why a session is over: op 9 false; a close code that says so; no RESUME was answered."""


class Numbers(NamedTuple):
    """Deadlines and limits; in seconds where no unit is told."""

    connect_s: float = 10.0
    """For TCP, TLS and HTTP."""
    hello_s: float = 10.0
    ready_s: float = 60.0
    """From IDENTIFY or RESUME to READY or RESUMED, or between two events of what was missed."""
    settled_s: float = 30.0
    """From READY to all its guilds."""
    close_s: float = 2.0
    """For the closing handshake; then the socket is cut."""
    again_s: float = 0.5
    """Before the next socket, at most; twice that after each failure, up to `again_most_s`."""
    again_most_s: float = 30.0
    invalid_least_s: float = 1.0
    invalid_most_s: float = 5.0
    """Before the next socket after op 9."""
    unanswered: int = 3
    resumable_s: float = 180.0
    """So many RESUMEs without an answer, and so long after it last stood, the session is given up."""
    stood_s: float = 5.0
    """A socket that waited for the gate for so long was no failure."""
    breaker_closes: int = 5
    breaker_within_s: float = 60.0
    breaker_pause_s: float = 300.0
    sends: int = 120
    sends_within_s: float = 60.0
    sends_kept: int = 10
    """Places of `sends` that beats and the opening have to themselves."""


class Ended(NamedTuple):
    """The end of one socket."""

    how: How
    why: str
    """For a person."""
    code: int = 0
    """Discord's close code."""
    opened: bool = False
    hailed: bool = False
    """IDENTIFY or RESUME was sent."""
    replayed: bool = False
    """Something came that the session had missed."""
    ready: bool = False
    """READY or RESUMED came."""
    lived_s: float = 0.0


class Again(NamedTuple):
    """Connect anew."""

    after_s: float
    paused: bool = False
    """The breaker says so."""
    dropped: Dropped | Literal[""] = ""
    """Why the session is not resumed any more."""


class Over(NamedTuple):
    """Do not."""

    why: str
    fatal: bool = False
    code: int = 0


class Breaker:
    """Sees a shard loop."""

    def __init__(self, numbers: Numbers) -> None:
        """Closed."""
        self._numbers = numbers
        self._closes: deque[float] = deque(maxlen=numbers.breaker_closes)
        self._paused_until_s = float("-inf")

    def pause_s(self, now_s: float, *, asked: bool = False) -> float:
        """A socket ended (`asked`: by op 7): 0, or for how long nothing should be tried."""
        numbers = self._numbers
        self._closes.append(now_s)
        many = len(self._closes) == numbers.breaker_closes
        looping = many and now_s - self._closes[0] <= numbers.breaker_within_s
        still = not asked and now_s - self._paused_until_s <= numbers.breaker_within_s
        if not (looping or still):
            return 0.0
        self._closes.clear()
        self._paused_until_s = now_s + numbers.breaker_pause_s
        return numbers.breaker_pause_s


class Plan:
    """See the module."""

    def __init__(self, main_url: str, session: Session | None, numbers: Numbers, chance: Callable[[], float]) -> None:
        """`chance`: from 0 to 1."""
        self.session = session
        self.main_url, self._numbers, self._chance = main_url, numbers, chance
        self._breaker = Breaker(numbers)
        self._failures = self._unanswered = 0
        self._stood_s: float | None = None
        """When the session last did; None: not since it came here."""
        self._gave_up_s = float("-inf")
        self._by_main_url = False

    @property
    def url(self) -> str:
        """Where to connect next."""
        session = self.session
        if session is None or self._by_main_url or not may_follow(session.resume_url, self.main_url):
            return self.main_url
        return session.resume_url

    def after(self, ended: Ended, now_s: float) -> Again | Over:
        """A socket has ended."""
        follows = after_close(ended.code) if ended.how == "closed" else "resume"
        if follows in ("fatal", "urgent"):
            return Over(meaning(ended.code), fatal=True, code=ended.code)
        if ended.how == "not ours":
            return Over(ended.why)
        self._note(ended, now_s)
        dropped = self._drop(ended, follows, now_s) if self.session is not None else ""
        tries_on = self.session is not None and not (ended.ready or ended.replayed)
        counts = ended.opened and (ended.hailed or ended.how == "invalid") and not tries_on
        pause_s = self._breaker.pause_s(now_s, asked=ended.how == "asked") if counts else 0.0
        if dropped == "unanswered":
            pause_s = max(pause_s, self._pause_of_another_s(now_s))
        return Again(pause_s or self._wait_s(ended), paused=pause_s > 0, dropped=dropped)

    def _drop(self, ended: Ended, follows: str, now_s: float) -> Dropped | Literal[""]:
        """Whether the session is over, and why."""
        found: Dropped | Literal[""] = ""
        many = self._unanswered >= self._numbers.unanswered
        if ended.how == "invalid":
            found = "invalid"
        elif follows == "new session":
            found = "closed"
        elif many and self._stood_s is not None and now_s - self._stood_s >= self._numbers.resumable_s:
            found = "unanswered"
        if found:
            self.session, self._unanswered, self._stood_s, self._by_main_url = None, 0, None, False
        return found

    def _pause_of_another_s(self, now_s: float) -> float:
        """For how long to pause as another session was given up shortly before this one; 0: none was."""
        numbers = self._numbers
        soon = now_s - self._gave_up_s <= numbers.resumable_s + numbers.breaker_pause_s
        pause_s = numbers.breaker_pause_s if soon else 0.0
        self._gave_up_s = now_s + pause_s
        return pause_s

    def _note(self, ended: Ended, now_s: float) -> None:
        if ended.ready or ended.replayed:
            self._stood_s = now_s
        elif self._stood_s is None:
            self._stood_s = now_s - ended.lived_s
        if ended.ready:
            self._failures = self._unanswered = 0
            self._by_main_url = False
            return
        waited = self.session is None and not ended.hailed and ended.lived_s >= self._numbers.stood_s
        self._failures = 0 if waited else self._failures + 1
        if self.session is not None:
            self._by_main_url = True
            self._unanswered = 0 if ended.replayed else self._unanswered + ended.hailed

    def _wait_s(self, ended: Ended) -> float:
        numbers = self._numbers
        invalid_s = numbers.invalid_least_s + self._chance() * (numbers.invalid_most_s - numbers.invalid_least_s)
        if ended.how == "invalid":
            return invalid_s
        if ended.how == "asked" and not self._failures:
            return 0.0
        most_s = min(numbers.again_most_s, numbers.again_s * 2 ** min(self._failures, 20))
        again_s = most_s * (1 + self._chance()) / 2
        return max(invalid_s, again_s) if ended.how == "try again" else again_s


class Sends:
    """The places for what is sent in a connection: so many in any such time, some of them for beats alone."""

    def __init__(self, numbers: Numbers) -> None:
        """All are free."""
        self._numbers = numbers
        self._sent: deque[float] = deque(maxlen=numbers.sends)

    def wait_s(self, now_s: float, *, beat: bool = False) -> float:
        """Take a place: 0; or seconds until one is free, and none is taken."""
        numbers, sent = self._numbers, self._sent
        places = numbers.sends if beat else numbers.sends - numbers.sends_kept
        while sent and sent[0] <= now_s - numbers.sends_within_s:
            sent.popleft()
        if len(sent) < places:
            sent.append(now_s)
            return 0.0
        left_s = sent[len(sent) - places] + numbers.sends_within_s - now_s
        return max(left_s, 0.001)  # rounding must not make it 0, which is a place
