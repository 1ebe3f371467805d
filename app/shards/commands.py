"""`python -m app shards`: what a person asks of a bot's shards and does to them.

The exit codes are those of the whole command line (`app.command_line`).

With `--json` standard output has one JSON document and nothing else; with `--watch` as well, one in each line.

Redis is tried once, for `ANSWER_S`, and Discord for `DISCORD_S`. Whoever waits for more than a second reads on standard
error for whom, and for how long at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.settings import load_settings, without_password
from app.shards.looking import figures, lines
from tasks.shards.keys import Keys
from tasks.shards.operations import Numbers, Operations, read_looked, read_outcome
from tasks.shards.rest import DiscordError, Rest
from tasks.shards.totals import MOST, Advice, refusal
from throttle.errors import ConfigurationError
from throttle.lua import evaluate

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Generator

    from app.settings import Settings
    from tasks.shards.answers import Looked
    from tasks.shards.operations import Call

REFUSED, ASKED_WRONGLY, INTERRUPTED = 1, 2, 130
WATCH_S = 1.0
ANSWER_S = 5.0
AUTO = "auto"
DISCORD_S = 8.0
SILENT_S = 1.0
"""So long nobody is told what is waited for."""
CLEAR = "\x1b[H\x1b[2J"
WHY = {
    "pending": "another target is pending; wait for it, or abort it",
    "unknown": "no pod has asked Discord yet how many identifies are left today",
    "budget": "the identifies that are left today do not pay for it",
    "guard": "the cluster is guarded: its pods have just lost sight of each other; try again in half a minute",
}


class Reached(NamedTuple):
    """A bot's cluster, and the way to it."""

    client: redis.Redis
    operations: Operations

    def ask(self, call: Call) -> Any:
        """Carry it out; its answer, raw."""
        return evaluate(self.client, self.operations.command(call), self.operations.script(call.name).source)

    def look(self) -> Looked:
        """The whole cluster."""
        return read_looked(self.ask(self.operations.look()))


def add(commands: Any, whole: Callable[[int, int], Callable[[str], int]]) -> None:
    """Add the commands to the command line of the application."""
    shards: argparse.ArgumentParser = commands.add_parser("shards", help="a Discord bot's shards: who holds what")
    shards.add_argument("--json", action="store_true", help="print one JSON object")
    shards.add_argument("--watch", action="store_true", help="show it again each second, until Ctrl-C")
    deeds = shards.add_subparsers(dest="deed", metavar="DEED")
    target = deeds.add_parser("target", help="wish for another number of shards")
    target.add_argument(
        "total", type=_total(whole(1, MOST)), help=f"from 1 to {MOST}, which stays; auto: what the pods vote for"
    )
    target.add_argument("--unasked", action="store_true", help="do not ask Discord whether it allows that number")
    deeds.add_parser("abort", help="give the pending target up; the active one goes on")
    deeds.add_parser("retry", help="let the pods try again what Discord closed connections for")


def _total(number: Callable[[str], int]) -> Callable[[str], int]:
    def total(text: str) -> int:
        return 0 if text == AUTO else number(text)

    return total


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; the exit code."""
    try:
        settings = load_settings()
    except ConfigurationError as error:
        return _say(str(error), ASKED_WRONGLY)
    if not settings.shards:
        return _say("no bot is configured: set DISCORD_TOKEN and DISCORD_BOT_ID", ASKED_WRONGLY)
    try:
        with _client(settings) as client:
            numbers = Numbers(ttl_ms=round(settings.shard_ttl_s * 1000))
            reached = Reached(client, Operations(Keys(settings.discord_bot_id), numbers))
            with waiting_for(f"Redis at {without_password(settings.redis_url)}", ANSWER_S):
                client.ping()
            return _do(reached, settings, arguments)
    except KeyboardInterrupt:  # the end of a watch
        return INTERRUPTED
    except (redis.RedisError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        line = next(iter(str(error).splitlines()), type(error).__name__)
        return _say(f"Redis failed: {line}", os.EX_UNAVAILABLE)


def _do(reached: Reached, settings: Settings, arguments: argparse.Namespace) -> int:
    if arguments.deed == "target":
        return _aim(reached, settings, arguments.total, unasked=arguments.unasked)
    if arguments.deed == "abort":
        return _abort(reached)
    if arguments.deed == "retry":
        return _retry(reached)
    return _show(reached, settings.discord_bot_id, as_json=arguments.json, watch=arguments.watch)


def _client(settings: Settings) -> redis.Redis:
    if not settings.redis_url.startswith("sentinel"):
        return redis.Redis.from_url(
            settings.redis_url,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            retry=Retry(NoBackoff(), 0),  # by itself redis-py tries a connection four times
        )
    raise redis.ConnectionError("the shards' commands do not know Sentinel yet; name the master in REDIS_URL")


def _show(reached: Reached, bot: str, *, as_json: bool, watch: bool) -> int:
    found = figures(bot, reached.look())
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        while watch:
            sys.stdout.flush()
            time.sleep(WATCH_S)
            sys.stdout.write(json.dumps(figures(bot, reached.look())) + "\n")
        return 0
    while True:
        # Where a person looks on, each picture takes the place of the last.
        sys.stdout.write((CLEAR if watch and sys.stdout.isatty() else "") + "\n".join(lines(found)) + "\n")
        if not watch:
            return 0
        sys.stdout.flush()
        time.sleep(WATCH_S)
        found = figures(bot, reached.look())


def _leave_to_votes(reached: Reached) -> int:
    outcome = read_outcome(reached.ask(reached.operations.target(0)))
    if outcome in ("pending", "guard"):
        return _say(f"it stays as it is: {WHY[outcome]}", REFUSED)
    sys.stdout.write("the pods' votes decide\n")
    return 0


def _aim(reached: Reached, settings: Settings, total: int, *, unasked: bool) -> int:
    if total == 0:
        return _leave_to_votes(reached)
    advice = None
    if not unasked:
        try:
            with waiting_for(f"Discord at {settings.discord_api_url}", DISCORD_S):
                advice = asyncio.run(_advice(settings))
        except DiscordError as error:
            return _say(f"{error} (--unasked does without it)", REFUSED)
    why = refusal(total, advice)
    if why:
        return _say(why, REFUSED)
    outcome = read_outcome(reached.ask(reached.operations.target(total)))
    if outcome in ("proposed", "same"):
        done = f"{total} shards are pending" if outcome == "proposed" else f"{total} shards are the target already"
        sys.stdout.write(f"{done}\n")
        return 0
    return _say(f"{total} shards were refused: {WHY.get(outcome, outcome)}", REFUSED)


async def _advice(settings: Settings) -> Advice:
    token = settings.discord_token.get_secret_value() if settings.discord_token else ""
    async with Rest(settings.discord_api_url, token, request_s=DISCORD_S / 2, within_s=DISCORD_S) as rest:
        told = await rest.gateway_bot()
    return Advice(told.shards, told.total, told.max_concurrency)


def _abort(reached: Reached) -> int:
    if not reached.ask(reached.operations.abort(0, "by a person")):
        return _say("no target is pending", REFUSED)
    sys.stdout.write("the pending target is given up\n")
    return 0


def _retry(reached: Reached) -> int:
    if not reached.ask(reached.operations.retry()):
        return _say("nothing is stopped", REFUSED)
    sys.stdout.write("the pods try again\n")
    return 0


@contextlib.contextmanager
def waiting_for(whom: str, at_most_s: float) -> Generator[None]:
    """Tell a person what is waited for, once it takes more than a moment. Standard output stays as it is."""
    told = threading.Timer(SILENT_S, _say, (f"waiting for {whom}, {at_most_s:g} s at most", 0))
    told.daemon = True
    told.start()
    try:
        yield
    finally:
        told.cancel()


def _say(line: str, code: int) -> int:
    sys.stderr.write(f"headroom: {line}\n")
    return code
