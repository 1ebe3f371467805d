"""The way into a stand-in that is a process of its own: JSON over HTTP, on the loopback address.

`POST /NAME` with an object of arguments carries out one of `Control`'s public methods, and answers what it returns;
400 with a line says what was wrong. `app.local.discord.remote` is the other side.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any, get_args

from aiohttp import web

from app.local.discord.doors import DoorState
from app.local.discord.load import Load
from app.local.discord.rest import Scripted
from app.local.discord.script import Fault

if TYPE_CHECKING:
    from app.local.discord.gateway import Gateway
    from app.local.discord.rest import RestStandIn

PAGE = 20_000
"""Entries in one answer: more would keep the loop too long."""
BOT = ("shards", "concurrency", "total", "remaining", "token_reset")


class Control:
    """What a test may do to a gateway and its REST from another process; every method is an operation."""

    def __init__(self, gateway: Gateway, rest: RestStandIn) -> None:
        """Both started, `gateway` in this loop."""
        self._gateway, self._rest = gateway, rest
        self._load: Load | None = None

    async def look(self) -> dict[str, Any]:
        """Addresses, and how things stand."""
        gateway = self._gateway
        return {
            "url": gateway.url,
            "resume_url": gateway.resume_door.url,
            "api_url": self._rest.url,
            "now_s": gateway.now_s(),
            "remaining": gateway.bot.remaining,
            "token_reset": gateway.bot.token_reset,
            "guilds": len(gateway.guilds),
            "entries": len(gateway.book.entries),
            "told": len(gateway.book.told),
            "said": self._load.said if self._load else 0,
            "beats": gateway.book.beats,
            "counts": dict(gateway.book.counts),
            "faults": len(gateway.script.faults),
            "statuses": dict(self._rest.statuses),
            "impatient": self._rest.impatient,
            "sessions": [
                {
                    "name": session.name,
                    "shard": session.shard,
                    "total": session.total,
                    "sequence": session.sequence,
                    "connected": session.client is not None,
                }
                for session in gateway.sessions
            ],
        }

    async def guilds(self) -> list[int]:
        """Their ids."""
        return list(self._gateway.guilds.ids)

    async def say(self, guild: int, name: str, data: dict[str, Any], *, numbered: bool = True) -> int:
        """As `Gateway.say`."""
        return self._gateway.say(guild, name, data, numbered=numbered)

    async def guild(self, guild: int, do: str) -> None:
        """`begin_outage`, `end_outage`, `join`, `leave`."""
        allowed = {
            "begin_outage": self._gateway.begin_outage,
            "end_outage": self._gateway.end_outage,
            "join": self._gateway.join,
            "leave": self._gateway.leave,
        }
        if do not in allowed:
            raise ValueError(f"do={do!r}: allowed are {sorted(allowed)}")
        allowed[do](guild)

    async def script(self, **fault: Any) -> None:
        """A fault that waits for its moment."""
        self._gateway.script.add(Fault(**fault))

    async def unscript(self) -> int:
        """Forget the faults that wait; how many there were."""
        count = len(self._gateway.script.faults)
        self._gateway.script.faults.clear()
        return count

    async def act(self, **fault: Any) -> int:
        """A fault now; on how many connections."""
        return self._gateway.act(Fault(**fault))

    async def door(self, name: str, state: DoorState) -> None:
        """`main` or `resume`: open, refuses, hangs, resets."""
        if name not in ("main", "resume") or state not in get_args(DoorState):
            raise ValueError(f"door {name!r} {state!r}: allowed are main and resume, {get_args(DoorState)}")
        await (self._gateway.main if name == "main" else self._gateway.resume_door).set(state)

    async def terms(self, **changed: float | str) -> None:
        """Change numbers of the rules."""
        _set(self._gateway.terms, changed, [field.name for field in dataclasses.fields(self._gateway.terms)])

    async def bot(self, **changed: float) -> None:
        """Change what Discord knows of the bot."""
        _set(self._gateway.bot, changed, BOT)

    async def reset_token(self) -> None:
        """End all sessions and the token."""
        self._gateway.reset_token("a person reset it")

    async def rest(self, **scripted: Any) -> None:
        """An answer of REST out of turn."""
        self._rest.script.append(Scripted(**scripted))

    async def load(self, per_s: float, seed: int = 1, direct: float = 0.02) -> int:
        """So many events a second from now on, 0 for none; how many were said until now."""
        said = 0
        if self._load is not None:
            said = self._load.said
            await self._load.stop()
        if per_s > 0:
            self._load = Load(self._gateway, per_s, seed=seed + said, direct=direct)
            self._load.said = said
            self._load.start()
        return said

    async def entries(self, after: int = 0) -> list[Any]:
        """The book's entries from a number on, from 0; a page of them."""
        return self._gateway.book.entries[after : after + PAGE]

    async def told(self, after: int = 0) -> list[Any]:
        """The book's events from a number on, from 0; a page of them."""
        return self._gateway.book.told[after : after + PAGE]


async def listen(control: Control, port: int) -> web.AppRunner:
    """Answer on 127.0.0.1 until the runner's `cleanup`. OSError: the port is taken."""

    async def carry_out(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        operation = None if name.startswith("_") else getattr(control, name, None)
        if operation is None:
            return web.json_response({"wrong": f"no operation {name!r}"}, status=404)
        try:
            arguments: dict[str, Any] = await request.json() if request.can_read_body else {}
            inspect.signature(operation).bind(**arguments)
            return web.json_response(await operation(**arguments))
        except (KeyError, TypeError, ValueError) as error:
            return web.json_response({"wrong": f"{name}: {error!r}"}, status=400)

    served = web.Application()
    served.router.add_post("/{name}", carry_out)
    runner = web.AppRunner(served, access_log=None, shutdown_timeout=0.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner


def _set(what: object, changed: dict[str, Any], allowed: Any) -> None:
    for name, value in changed.items():
        if name not in allowed or not isinstance(value, str if isinstance(getattr(what, name), str) else int | float):
            raise ValueError(f"{name}={value!r}: allowed are {list(allowed)}, each of the type that it has")
    for name, value in changed.items():
        setattr(what, name, value)
