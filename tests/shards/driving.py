"""Drivers with simulated shards, and members by hand beside them, for tests of a driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.shards.commands import Reached
from tasks.shards.driver import Driver
from tasks.shards.keys import Keys
from tasks.shards.operations import Known, Numbers, Operations
from tasks.shards.simulated import Simulated

if TYPE_CHECKING:
    from tasks.shards.vocabulary import Slot
    from tests.support.servers import Client

KEYS = Keys("1")
LONG = Numbers(ttl_ms=600_000, scan_ms=0)
"""Nobody dies of silence while this lasts."""


class Resumes:
    """Every session goes on."""

    async def resumes(self, slot: Slot) -> bool:
        """Yes."""
        del slot
        return True

    async def identified(self, slot: Slot) -> None:
        """Never needed."""

    async def close(self) -> None:
        """Nobody asks any more."""


def member(valkey: Client, name: str) -> Reached:
    """A member by hand, in a cluster without a guard."""
    made = Reached(valkey, Operations(KEYS, LONG, name))
    made.operations.server = str(valkey.info("server")["run_id"])  # for another one would arm the guard
    made.ask(made.operations.sync(Known(), (), limit=9, draining=False, seen=-1))
    valkey.hdel(KEYS.state(), "guard")
    made.ask(made.operations.budget(1000, 900, 1000, 1))
    return made


def driver(valkey: Client, name: str, *, url: str = "", **options: Any) -> Driver:
    """One that is not started; its shards are there as soon as it has them. `url`: another way to the server."""
    return Driver(url or valkey.url, Operations(KEYS, LONG, name), Simulated(Resumes()), **options)
