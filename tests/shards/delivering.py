"""A cluster on a real server for tests of the delivery: members by hand, outboxes, and what came into the queues."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from app.shards.commands import Reached
from tasks.shards.delivery.calls import Batch, Calls, Delivered, Parcel, read_delivered, script
from tasks.shards.delivery.delivery import Outbox
from tasks.shards.delivery.parcels import Written
from tasks.shards.gateway.session import Event, Session
from tasks.shards.keys import Keys
from tasks.shards.operations import Hold, Known, Numbers, Operations
from throttle.lua import Script

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable
    from types import ModuleType

    import pytest

    from tasks.shards.answers import Target
    from tasks.shards.vocabulary import Slot
    from tests.support.servers import Client

QUEUE, FLEET = "task_queue", "{headroom:default}:"
NUMBERS = Numbers(ttl_ms=600_000, scan_ms=0)
"""Nobody dies of silence."""
URL = "wss://resume.example/"
WAIT_S = 10.0


def guild(number: int) -> int:
    """The id of a guild; of two shards, it belongs to shard `number % 2`."""
    return (number << 22) + 7


def event(session: Session, sequence: int, content: str, *, of: int = 0, name: str = "MESSAGE_CREATE") -> Event:
    """A message with an id of its own, or with another `name` what repeats itself."""
    data: dict[str, Any] = {"guild_id": str(guild(of)), "content": content}
    if name == "MESSAGE_CREATE":
        data["id"] = str(int.from_bytes(content.encode(), "big") % 10**18 + 1)
    return Event(session.id, sequence, name, data, 100)


def written_otherwise(
    client: Client, module: ModuleType, name: str, changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> set[str]:
    """Have `module.script` give one script with these texts changed; which of them it had, once it was asked for."""
    real, used = module.script, set[str]()

    def changed(asked: str) -> Script:
        made: Script = real(asked)
        if asked != name:
            return made
        source = made.source
        for old, new in changes.items():
            used.update([old] if old in source else [])
            source = source.replace(old, new)
        return Script(name, source, str(client.script_load(source)))

    monkeypatch.setattr(module, "script", changed)
    return used


class Plain:
    """Writes events as short texts. Wants all but PRESENCE_UPDATE."""

    fleet, ratio = FLEET, 0.8

    def wants(self, name: str) -> bool:
        return name != "PRESENCE_UPDATE"

    def write(self, event: Event, identity: str) -> Written:
        del identity
        told = [event.data["content"], event.session_id, event.sequence]
        return Written(QUEUE, json.dumps(told).encode())


class Member:
    """One member, by hand: what it holds, and an outbox."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.ops = Operations(Keys("1"), NUMBERS, name)
        self.ops.server = str(client.info("server")["run_id"])
        self.reached = Reached(client, self.ops)
        self.calls = Calls(self.ops, FLEET, 0.8)
        self.fences: dict[Slot, int] = {}
        self.refusals: list[tuple[Slot, str]] = []
        self.pending: Target | None = None
        self.made: Outbox | None = None
        self.beats, self.hears = 0, True
        """Its beats are answered."""

    def sync(self, *, ready: bool = True) -> None:
        holds = [Hold(*slot, fence, ready) for slot, fence in self.fences.items()]
        self.reached.ask(self.ops.sync(Known(), holds, limit=99, draining=False, seen=-1))

    def claim(self, version: int, *shards: int) -> None:
        fences = self.reached.ask(self.ops.claim(version, 99, shards))
        self.fences |= {(version, shard): fence for shard, fence in zip(shards, fences, strict=True) if fence}

    def release(self, slot: Slot) -> None:
        assert self.reached.ask(self.ops.release(*slot, self.fences.pop(slot))) == 1

    def flip(self, version: int) -> int:
        return cast("int", self.reached.ask(self.ops.flip(version)))

    def deliver(self, slot: Slot, batch: Batch) -> Delivered:
        return read_delivered(self.send(self.calls.deliver(slot, batch)))

    def send(self, command: tuple[Any, ...]) -> Any:
        self.client.script_load(script("deliver").source)
        return cast("Any", self.client).execute_command(*command)

    # -- as the holder of an outbox

    def refused(self, slot: Slot, fence: int, why: str) -> None:
        del fence
        self.refusals.append((slot, why))

    def beat(self, slot: Slot, fence: int) -> None:
        """Discord answers at once, as long as it does."""
        self.beats += 1
        if self.hears and self.made is not None:
            self.made.answered(slot, fence, time.monotonic())

    def holds(self, slot: Slot, fence: int) -> bool:
        return self.fences.get(slot) == fence

    @asynccontextmanager
    async def outbox(self, **options: Any) -> AsyncGenerator[Outbox]:
        made = self.made = Outbox(self.client.url, self.ops, options.pop("writer", None) or Plain(), self, **options)
        made.begin(lambda: self.pending)
        try:
            yield made
        finally:
            await made.end()


class Cluster:
    """A cluster with its members."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.a = self.member("a#1")
        self.client.hdel(Keys("1").state(), "guard")
        self.a.reached.ask(self.a.ops.budget(1000, 1000, 86_400_000, 16))

    def member(self, name: str) -> Member:
        made = Member(self.client, name)
        made.sync()
        return made

    def target(self, total: int) -> int:
        """A pending target's version."""
        assert self.a.reached.ask(self.a.ops.target(total)) == 1
        pending = self.a.reached.look().head.pending
        assert pending is not None
        self.a.pending = pending
        return pending.version

    def serving(self, total: int = 1) -> int:
        """An active target whose shards `a` holds; its version."""
        version = self.target(total)
        self.a.claim(version, *range(total))
        self.a.sync()
        assert self.a.flip(version) == 1
        self.a.pending = None
        return version

    def came(self) -> list[list[Any]]:
        """What came into the queue, in its order: content, session, sequence."""
        raw = cast("list[bytes]", self.client.lrange(QUEUE, 0, -1))
        return [json.loads(each) for each in reversed(raw)]

    def contents(self) -> list[str]:
        return [content for content, _, _ in self.came()]

    def twice(self) -> list[str]:
        return [content for content, times in Counter(self.contents()).items() if times > 1]

    def log(self, version: int, shard: int) -> list[Any]:
        return cast("list[Any]", self.client.xrange(f"{Keys('1').namespace()}overlap:{version}:{shard}"))

    def saved(self, slot: Slot) -> str:
        raw = cast("bytes | None", self.client.hget(f"{Keys('1').namespace()}session:{slot[0]}", str(slot[1])))
        return raw.decode() if raw else ""


def batch(member: Member, slot: Slot, parcels: Iterable[Parcel], session: str = "s", **more: Any) -> Batch:
    """A DELIVER by hand."""
    return Batch(member.fences[slot], more.pop("generation", 1), Session(session, 0, URL), 0, tuple(parcels), **more)


def parcel(sequence: int, content: str, deed: Any = "push", **more: Any) -> Parcel:
    """An event by hand."""
    message = json.dumps([content, "", sequence]).encode()
    return Parcel(sequence, deed, QUEUE if deed == "push" else "", identity=f"={content}", message=message, **more)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something, while the loop goes on."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "in vain"
        await asyncio.sleep(0.01)
