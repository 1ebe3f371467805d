"""What a new session gets first: READY, which names its guilds as unavailable, and their GUILD_CREATEs one by one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from app.local.discord.guilds import created
from app.local.discord.sessions import Event

if TYPE_CHECKING:
    from app.local.discord.book import Book
    from app.local.discord.guilds import Guilds
    from app.local.discord.sessions import Session
    from app.local.discord.terms import Terms

BOT_ID = "4711"


class Welcome:
    """Of one gateway. A guild in an outage comes when that is over."""

    def __init__(self, guilds: Guilds, terms: Terms, book: Book) -> None:
        """Nobody is greeted yet."""
        self._guilds, self._terms, self._book = guilds, terms, book
        self._trickles: set[asyncio.Task[None]] = set()

    def greet(self, session: Session, resume_url: str) -> None:
        """Send READY, and begin with the guilds. They come also while nobody is connected: a RESUME finds them."""
        guilds = self._guilds.of(session.shard, session.total)
        session.waiting = set(guilds)
        data = {
            "v": session.dialect.version,
            "user": {"id": BOT_ID, "username": "stand-in", "discriminator": "0", "bot": True},
            "guilds": [{"id": str(guild), "unavailable": True} for guild in guilds],
            "session_id": session.name,
            "session_type": "normal",
            "resume_gateway_url": resume_url,
            "shard": [session.shard, session.total],
            "application": {"id": BOT_ID, "flags": 0},
            "private_channels": [],
            "_trace": [],
        }
        session.send(Event.of("READY", 0, data))
        self._note("ready", session)
        if self._terms.trickle_s > 0:
            task = asyncio.create_task(self._trickle(session, guilds))
            self._trickles.add(task)
            task.add_done_callback(self._trickles.discard)
        else:
            for guild in guilds:
                self._create(session, guild)
            self._note("settled", session)

    def end(self) -> None:
        """Nothing trickles any more."""
        for task in self._trickles:
            task.cancel()

    async def _trickle(self, session: Session, guilds: list[int]) -> None:
        for guild in guilds:
            await asyncio.sleep(self._terms.trickle_s)
            if session.over:
                return
            self._create(session, guild)
        self._note("settled", session)

    def _create(self, session: Session, guild: int) -> None:
        if guild in session.waiting and self._guilds.is_available(guild):
            session.create(Event.of("GUILD_CREATE", guild, created(guild)))
        elif guild in session.waiting and guild in self._guilds and self._terms.tells_outages:
            away = Event.of("GUILD_DELETE", guild, {"id": str(guild), "unavailable": True})
            if away.needs & session.intents:
                session.send(away)

    def _note(self, kind: str, session: Session) -> None:
        number = session.client.number if session.client is not None else 0
        whose = {"shard": session.shard, "total": session.total, "session": session.name}
        self._book.note(kind, number, **whose, sequence=session.sequence)
