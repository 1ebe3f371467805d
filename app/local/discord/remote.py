"""A stand-in in a process of its own, for fleets whose pods are processes: started, told what to do, read.

    discord = start(guard, folder, shards=16, concurrency=16, guilds=100)
    pods with DISCORD_API_URL=discord.api_url, DISCORD_TOKEN=discord.token
    discord.load(200.0)
    discord.act(do="reconnect", shard=3)
    discord.load(0)
    verdict = weigh(discord.told(), reports)                  # app.local.discord.checker
    gaps(spells(discord.entries(), discord.now_s()))

Every call is one HTTP request on the loopback address. A stand-in that ended is an OSError.
"""

from __future__ import annotations

import http.client
import json
import sys
from typing import TYPE_CHECKING, Any

from app.local.discord.book import Entry, Told
from app.local.servers import free_port
from app.local.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from app.local.guard import Guard, Process

START_S = 20.0
ANSWER_S = 30.0
TOKEN = "stand-in-token"  # noqa: S105 - of no real bot


class Remote:
    """The other side of `app.local.discord.control`; what it lacks is called by `call`."""

    def __init__(self, port: int, token: str = TOKEN, process: Process | None = None) -> None:
        """`port`: of the control interface, on 127.0.0.1."""
        self.token, self.process = token, process
        self._port = port
        self._entries: list[Entry] = []
        self._told: list[Told] = []

    def call(self, operation: str, **arguments: Any) -> Any:
        """Carry out an operation and return its answer. ValueError: it was refused, with the reason."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_S)
        try:
            connection.request("POST", f"/{operation}", json.dumps(arguments), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise ValueError(body.decode(errors="replace"))
        return json.loads(body)

    def look(self) -> dict[str, Any]:
        """See `Control.look`."""
        return self.call("look")

    @property
    def api_url(self) -> str:
        """As DISCORD_API_URL wants it."""
        return self.look()["api_url"]

    @property
    def url(self) -> str:
        """Of the gateway."""
        return self.look()["url"]

    def now_s(self) -> float:
        """The stand-in's clock."""
        return self.look()["now_s"]

    def guilds(self) -> list[int]:
        """Their ids."""
        return self.call("guilds")

    def say(self, guild: int, name: str, data: dict[str, Any], *, numbered: bool = True) -> int:
        """As `Gateway.say`."""
        return self.call("say", guild=guild, name=name, data=data, numbered=numbered)

    def script(self, **fault: Any) -> None:
        """A `Fault` that waits for its moment."""
        self.call("script", **fault)

    def act(self, **fault: Any) -> int:
        """A `Fault` now; on how many connections."""
        return self.call("act", **fault)

    def door(self, name: str, state: str) -> None:
        """`main` or `resume`: open, refuses, hangs, resets."""
        self.call("door", name=name, state=state)

    def terms(self, **changed: float | str) -> None:
        """Change `Terms`."""
        self.call("terms", **changed)

    def bot(self, **changed: float) -> None:
        """Change what Discord knows of the bot: shards, concurrency, total, remaining."""
        self.call("bot", **changed)

    def load(self, per_s: float, **more: float) -> int:
        """So many events a second from now on, 0 for none; how many were said until now."""
        return self.call("load", per_s=per_s, **more)

    def entries(self) -> list[Entry]:
        """The book's, all of them; only the new ones are fetched."""
        while page := self.call("entries", after=len(self._entries)):
            self._entries += [Entry(*entry) for entry in page]
        return self._entries

    def told(self) -> list[Told]:
        """The book's events, all of them; only the new ones are fetched."""
        while page := self.call("told", after=len(self._told)):
            self._told += [Told(*event) for event in page]
        return self._told


def start(
    guard: Guard,
    folder: Path,
    *,
    shards: int = 1,
    concurrency: int = 1,
    guilds: int = 10,
    total: int = 1000,
    token: str = TOKEN,
) -> Remote:
    """Start a stand-in and wait until it answers.

    Args:
        guard: ends it.
        folder: for its log, discord.log.
        shards: how many Discord recommends.
        concurrency: buckets of identifies.
        guilds: how many the bot is in.
        total: identifies of a day.
        token: the bot's.

    Raises:
        WaitError: it did not start; with what it said.
    """
    port = free_port()
    options = {"control-port": port, "shards": shards, "concurrency": concurrency, "guilds": guilds, "total": total}
    command = [sys.executable, "-m", "app.local.discord", "--token", token]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    process = guard.start("discord", command, log=folder / "discord.log")
    remote = Remote(port, token, process)
    wait_until(lambda: _answers(remote) or not process.running, START_S, what=process.read_log)
    if not process.running:
        raise ChildProcessError(f"the stand-in ended at its start: {process.read_log().strip()}")
    return remote


def _answers(remote: Remote) -> bool:
    try:
        return bool(remote.look())
    except OSError:
        return False
