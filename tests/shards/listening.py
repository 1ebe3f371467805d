"""A shard's connection and who listens to it, for tests: everything that was heard, in its order."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from tasks.shards.gateway.connection import Connection
from tasks.shards.gateway.plan import Numbers
from tasks.shards.gateway.session import Session, Shard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection

    from app.local.discord.gateway import Gateway
    from tasks.shards.gateway.plan import Dropped
    from tasks.shards.gateway.session import Event

TOKEN = "secret-token"  # noqa: S105 - of no bot
INTENTS = 1 | 1 << 9 | 1 << 11
QUICK = Numbers(
    connect_s=0.5,
    hello_s=0.25,
    ready_s=0.3,
    settled_s=0.3,
    close_s=0.3,
    again_s=0.02,
    resumable_s=0.6,
    again_most_s=0.1,
    invalid_least_s=0.01,
    invalid_most_s=0.05,
    breaker_within_s=1.0,
    breaker_pause_s=0.5,
)
"""A hundredth of what they are, roughly."""
WAIT_S = 5.0


class Listener:
    """Hears one connection; may identify at once, unless `gate` says otherwise."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.events: list[Event] = []
        self.sessions: list[Session] = []
        self.guilds: Collection[int] = ()
        self.counts: Counter[str] = Counter()
        self.whys: list[str] = []
        self.waits: list[float] = []
        self.answers: list[float] = []
        self.end: tuple[str, bool, int] | None = None
        self.gate: Callable[[], Any] | None = None
        self.resumes: asyncio.Event | None = None
        self.on_heard: Callable[[Event], None] = self.events.append
        self.confirmed: int | None = None
        self.turns = self.most_turns = 0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        self.counts["turn"] += 1
        self.turns += 1
        try:
            yield
        finally:
            self.turns -= 1

    async def may_resume(self) -> None:
        self.counts["may resume"] += 1
        if self.resumes is not None:
            await self.resumes.wait()

    async def may_identify(self) -> bool:
        self.counts["asked"] += 1
        return True if self.gate is None else await self.gate()

    def began(self, session: Session, guilds: Collection[int]) -> None:
        self.sessions.append(session)
        self.guilds = guilds

    def heard(self, event: Event) -> None:
        self.on_heard(event)

    async def room(self) -> None:
        self.counts["room"] += 1

    def handed_on(self) -> int:
        if self.confirmed is not None:
            return self.confirmed
        return self.events[-1].sequence if self.events else 0

    def answered(self, sent_s: float) -> None:
        self.answers.append(sent_s)

    def settled(self) -> None:
        self.counts["settled"] += 1

    def dropped(self, why: Dropped) -> None:
        self.counts["dropped"] += 1
        self.counts[f"dropped: {why}"] += 1

    def lost(self, why: str, after_s: float) -> None:
        self.counts["lost"] += 1
        self.whys.append(why)
        self.waits.append(after_s)

    def over(self, why: str, *, fatal: bool, code: int) -> None:
        assert self.end is None, "over twice"
        self.end = (why, fatal, code)

    def typed(self) -> list[str]:
        """Who typed, in the order in which it was heard."""
        return [event.data["user_id"] for event in self.events if event.name == "TYPING_START"]


class Heard:
    """A connection with its listener."""

    def __init__(
        self, gateway: Gateway, *, shard: int = 0, total: int = 1, session: Session | None = None, **options: Any
    ) -> None:
        """Nothing happens before `start`."""
        self.gateway = gateway
        self.ear = Listener()
        options = {"numbers": QUICK, "url": gateway.url, **options}
        place = Shard(options.pop("url"), TOKEN, INTENTS, shard, total)
        self.connection = Connection(place, self.ear, session=session, **options)

    async def settled(self, times: int = 1) -> Heard:
        """Start if that was not done, and wait until it has settled so often."""
        if self.connection.state == "waiting" and not self.ear.counts["turn"]:
            self.connection.start()
        await until(lambda: self.ear.counts["settled"] >= times or self.ear.end is not None, self.describe)
        assert self.ear.end is None, self.ear.end
        return self

    def describe(self) -> str:
        return f"{self.connection!r} {dict(self.ear.counts)} {self.ear.whys[-3:]}"


async def until(condition: Callable[[], object], what: object = "", within_s: float = WAIT_S) -> None:
    """Wait for a condition in the loop; AssertionError when it does not come."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + within_s
    while not condition():
        said = what() if callable(what) else what
        assert loop.time() < give_up_s, f"waited {within_s:g} s in vain: {said}"
        await asyncio.sleep(0.005)
