"""Discord's gateway on the loopback address: sessions, identifies, resumes, and the events that a test tells.

It lives in one asyncio loop, of a test or of `python -m app.local.discord`:

    async with Gateway(Bot("token", shards=4, concurrency=16), guilds=40) as gateway:
        connect(gateway.url)                     # with ?v=10&encoding=json, and &compress=zlib-stream if you like
        gateway.script.add(Fault(do="close", code=1011, at="identify", shard=3, times=None))
        number = gateway.say(guild, "TYPING_START", {...})
        gateway.act(Fault(do="reconnect"), ...)
        check(gateway.book, heard)               # app.local.discord.checker
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any, Self

from app.local.discord.admission import Admission
from app.local.discord.book import Book
from app.local.discord.client import Client
from app.local.discord.doors import Door
from app.local.discord.drift import Drift
from app.local.discord.guilds import Guilds, created
from app.local.discord.script import Script
from app.local.discord.sessions import Event, Session, Sessions
from app.local.discord.terms import Terms
from app.local.discord.welcome import Welcome
from app.local.discord.wire import Breach, Close, Op, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from websockets.asyncio.server import ServerConnection

    from app.local.discord.bot import Bot
    from app.local.discord.script import Door as DoorName
    from app.local.discord.script import Fault
    from app.local.discord.wire import Identify, Resume


class Gateway:
    """See the module. `terms`, `script` and `bot` may be changed at any time, in its loop."""

    def __init__(
        self,
        bot: Bot,
        *,
        guilds: int = 0,
        terms: Terms | None = None,
        ports: tuple[int | None, int | None] = (None, None),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing listens before `start`.

        Args:
            bot: shared with the REST stand-in.
            guilds: how many the bot is in.
            terms: the rules' numbers.
            ports: of the main and of the resume address; None takes a free one.
            clock: monotonic seconds.
        """
        self.bot, self.terms, self.guilds = bot, terms or Terms(), Guilds(guilds)
        self.book, self.script, self.sessions = Book(clock), Script(), Sessions()
        self.main = Door("main", self._serve_main, self.script, ports[0])
        self.resume_door = Door("resume", self._serve_resume, self.script, ports[1])
        self.now_s = clock
        self._admission = Admission(bot, self.terms, self.guilds)
        self._numbers = itertools.count(1)
        self._drift = Drift(self.terms, clock)
        self._welcome = Welcome(self.guilds, self.terms, self.book)
        self.windows: dict[str, asyncio.TimerHandle] = {}
        """The ends of sessions without a connection."""
        self._defects: list[Exception] = []

    @property
    def url(self) -> str:
        """The main address, without a query."""
        return self.main.url

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()

    async def start(self) -> None:
        """Listen. OSError: a port is taken."""
        await self.main.listen()
        await self.resume_door.listen()

    async def stop(self) -> None:
        """Drop every connection and session. ExceptionGroup: the stand-in had errors of its own, seen as code 1011."""
        self._welcome.end()
        self._drift.end()
        await self.main.end()
        await self.resume_door.end()
        for timer in self.windows.values():
            timer.cancel()
        if self._defects:
            raise ExceptionGroup("the stand-in itself is at fault", self._defects)

    # ---------------------------------------------------------------- the test's side

    def say(self, guild: int, name: str, data: dict[str, Any], *, numbered: bool = True) -> int:
        """Tell an event to every session of its shards, connected or not.

        Args:
            guild: its id; 0 for what has none (each total's shard 0 hears it).
            name: such as MESSAGE_CREATE.
            data: what Discord would send; `guild_id` is added where there is a guild.
            numbered: whether the checker shall look for it.

        Returns:
            The event's number in the book; 0 for one that is not numbered, or that nobody can hear: an outage's guild.

        Raises:
            ValueError: the bot is not in that guild.
        """
        if guild and guild not in self.guilds:
            raise ValueError(f"guild {guild} is none of the bot's")
        if guild and not self.guilds.is_available(guild):
            return 0
        return self._tell(guild, name, data, numbered=numbered)

    def _tell(self, guild: int, name: str, data: dict[str, Any], *, numbered: bool) -> int:
        if guild and not name.startswith(("GUILD_CREATE", "GUILD_DELETE", "GUILD_UPDATE")):
            data = {"guild_id": str(guild), **data}
        event = Event.of(name, guild, data)
        meant = list(self.sessions.of(guild))
        number = 0
        if numbered:
            wanted = not meant or any(not event.needs or event.needs & session.intents for session in meant)
            number = self.book.tell(guild, name, data, heard=wanted)
        self._drift.deliver(event, meant)
        return number

    def begin_outage(self, guild: int) -> None:
        """The guild becomes unavailable, for all. KeyError: it is none of the bot's."""
        if self.guilds.is_available(guild):
            self._tell(guild, "GUILD_DELETE", {"id": str(guild), "unavailable": True}, numbered=True)
        self.guilds.set_available(guild, available=False)

    def end_outage(self, guild: int) -> None:
        """Its GUILD_CREATE comes; to a session that never had it, as the one that its READY promised."""
        self.guilds.set_available(guild, available=True)
        event = Event.of("GUILD_CREATE", guild, created(guild))
        for session in self.sessions.of(guild):
            self._drift.catch_up(session)
            session.create(event)

    def join(self, guild: int) -> None:
        """The bot joins a guild."""
        self.guilds.add(guild)
        self._tell(guild, "GUILD_CREATE", created(guild), numbered=True)

    def leave(self, guild: int) -> None:
        """The bot is thrown out."""
        self._tell(guild, "GUILD_DELETE", {"id": str(guild)}, numbered=True)
        self.guilds.remove(guild)

    def act(self, fault: Fault) -> int:
        """Carry out a fault now, on every connection with a session that it fits. How many there were."""
        hit = [
            session.client
            for session in list(self.sessions)
            if session.client is not None and fault.fits(session.shard, session.total, session.client.door)
        ]
        for client in hit:
            client.act(fault)
        return len(hit)

    # ---------------------------------------------------------------- what clients ask for

    def identify(self, client: Client, asked: Identify) -> None:
        """Op 2. Raises `Breach`."""
        who: dict[str, Any] = {"shard": asked.shard, "total": asked.total}
        client.note("identify", **who, bucket=self._admission.bucket(asked.shard), why=client.door)
        verdict = self._admission.judge(asked, self.now_s())
        if verdict == "overdrawn":
            self.reset_token("more identifies than the day has")
            raise Breach(Close.AUTHENTICATION_FAILED, "the token was reset")
        if verdict == "too soon":
            client.note("refused", **who, bucket=self._admission.bucket(asked.shard))
            client.push(write(Op.INVALID_SESSION, data=False))
            return
        if client.suffer_as("identify", asked.shard, asked.total):
            return
        session = Session(asked.shard, asked.total, asked.intents, client.dialect, self.terms.replays)
        self.sessions.add(session)
        session.client, client.session = client, session
        self._welcome.greet(session, self.resume_door.url)
        client.suffer("ready")

    def resume(self, client: Client, asked: Resume) -> None:
        """Op 6. Raises `Breach`."""
        session = self.sessions.by_name.get(asked.session)
        who: dict[str, Any] = {"session": asked.session, "sequence": asked.sequence}
        if session is not None:
            who |= {"shard": session.shard, "total": session.total}
        client.note("resume", **who, why=client.door)
        self._admission.knows(asked.token)
        if session is None or session.dialect != client.dialect:
            self.invalidate(client, None, resumable=False, who=who)
            return
        if asked.sequence > session.sequence:
            self._end(session, "resumed from a sequence that it never had")
            raise Breach(Close.INVALID_SEQUENCE, f"sequence {asked.sequence}, of {session.sequence}")
        if client.suffer_as("resume", session.shard, session.total, session):
            return
        if not session.can_replay(asked.sequence):
            self.invalidate(client, session, resumable=False, who=who)
            return
        if session.client is not None:
            if self.terms.twin == "refused":
                self.invalidate(client, None, resumable=True, who=who)
                return
            session.client.shut(Close.UNKNOWN_ERROR, "resumed by another connection")
        self._attach(client, session, asked.sequence)

    def _attach(self, client: Client, session: Session, sequence: int) -> None:
        window = self.windows.pop(session.name, None)
        if window is not None:
            window.cancel()
        session.client, client.session = client, session
        for text in session.replay(sequence):
            client.push(text)
        session.send_resumed()
        client.note("resumed")
        client.suffer("ready")

    def invalidate(
        self, client: Client, session: Session | None, *, resumable: bool, who: dict[str, Any] | None = None
    ) -> None:
        """Op 9; without `resumable` the session is over. `who`: for the book, where the connection has no session."""
        client.note("invalid", **(who or {}), code=int(resumable))
        client.push(write(Op.INVALID_SESSION, resumable))
        self.detach(client, session, "" if resumable else "op 9")

    def detach(self, client: Client, session: Session | None, over: str) -> None:
        """A connection does not have its session any more; with `over` nobody will."""
        if session is None:
            return
        if client.session is session:
            client.session = session.client = None
        if over:
            self._end(session, over)
        elif session.client is None and not session.over and session.name not in self.windows:
            self.windows[session.name] = asyncio.get_running_loop().call_later(
                self.terms.resume_window_s, self._end, session, "nobody resumed it"
            )

    def reset_token(self, why: str) -> None:
        """Every session ends, and the token with them."""
        self.bot.token_reset = True
        for session in list(self.sessions):
            if session.client is not None:
                session.client.shut(Close.AUTHENTICATION_FAILED, why)
            self._end(session, why)

    def _end(self, session: Session, why: str) -> None:
        window = self.windows.pop(session.name, None)
        if window is not None:
            window.cancel()
        if self.sessions.end(session, why):
            whose: dict[str, Any] = {"shard": session.shard, "total": session.total, "session": session.name}
            self.book.note("over", **whose, sequence=session.sequence, why=why)

    # ---------------------------------------------------------------- sockets

    async def _serve_main(self, connection: ServerConnection) -> None:
        await self._serve(connection, "main")

    async def _serve_resume(self, connection: ServerConnection) -> None:
        await self._serve(connection, "resume")

    async def _serve(self, connection: ServerConnection, door: DoorName) -> None:
        client = Client(self, connection, next(self._numbers), door)
        self.book.note("connect", client.number, why=door)
        try:
            await client.serve()
        except Exception as error:
            self._defects.append(error)
            raise
