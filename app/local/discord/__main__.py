"""`python -m app.local.discord`: the stand-in as a process, until SIGTERM or Ctrl-C.

Prints its addresses as one line of JSON. What it can be told is in `app.local.discord.control`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal

from app.local.discord.bot import Bot
from app.local.discord.control import Control, listen
from app.local.discord.gateway import Gateway
from app.local.discord.rest import RestStandIn


async def stand_in(asked: argparse.Namespace) -> None:
    """Stand in for Discord until a signal."""
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    bot = Bot(asked.token, shards=asked.shards, total=asked.total, concurrency=asked.concurrency)
    async with Gateway(bot, guilds=asked.guilds) as gateway:
        with RestStandIn(bot, gateway_url=gateway.url) as rest:
            control = await listen(Control(gateway, rest), asked.control_port)
            port = control.addresses[0][1]
            addresses = {"api_url": rest.url, "url": gateway.url, "control": f"http://127.0.0.1:{port}"}
            print(json.dumps(addresses), flush=True)
            await over.wait()
            await control.cleanup()


def count(text: str) -> int:
    """An argument that is a whole number, from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a whole number from 0")
    return int(text)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m app.local.discord", description="Discord on the loopback address")
    parser.add_argument(
        "--control-port", type=count, required=True, help="of the control interface, on 127.0.0.1; 0: any"
    )
    parser.add_argument("--token", default="stand-in-token", help="of the bot")
    parser.add_argument("--shards", type=count, default=1, help="how many Discord recommends")
    parser.add_argument("--concurrency", type=count, default=1, help="buckets of identifies (max_concurrency)")
    parser.add_argument("--guilds", type=count, default=10, help="how many the bot is in")
    parser.add_argument("--total", type=count, default=1000, help="identifies of a day")
    try:
        asyncio.run(stand_in(parser.parse_args()))
    except OSError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
