"""Carries out what the coordinator decides: one asyncio loop in one thread of the process that holds the shards.

It decides nothing. It turns the clock (ten times a second), sends operations over one connection to Redis, one after
the other, hears notifications on another, and feeds what came of everything back. An operation whose answer does not
come within a second, or that is refused (by a server that is a replica now, or full), is given up together with its
connection, and the next connection is asked first which server it is: another one means that the guard is armed before
anything is claimed.

A crash leaves what the operations leave (see the package). A loop that stood still (a frozen process, a hog that held
Python's lock) finds its lease run out by the monotonic clock before it does anything else. A fault of its own ends the
loop with all its connections, and who started it is told: the process is to be replaced, and its shards go to others by
their leases.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from tasks.shards import vocabulary as v
from tasks.shards.answers import View
from tasks.shards.beside import Beside
from tasks.shards.connection import Waiting
from tasks.shards.coordinator import step, sync_call
from tasks.shards.gate import Gate
from tasks.shards.listening import ERRORS, listen
from tasks.shards.liveness import ByHeartbeat, FirstSeen, merge
from tasks.shards.operations import read_outcome, read_synced
from tasks.shards.placement import UNLIMITED
from tasks.shards.telling import Teller

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from tasks.shards.answers import Synced
    from tasks.shards.connection import Connections
    from tasks.shards.liveness import Liveness
    from tasks.shards.operations import Call, Operations
    from tasks.shards.telling import Figures
    from tasks.shards.vocabulary import Slot

logger = logging.getLogger(__name__)

TICK_S = 0.1
ANSWER_S = 1.0


class Driver:
    """One member of a bot's cluster, in a thread of its own. `start`, then `drain` or `stop`."""

    def __init__(
        self,
        url: str,
        operations: Operations,
        connections: Connections,
        *,
        limit: int = UNLIMITED,
        votes: Callable[[Callable[[v.Told], None]], Coroutine[Any, Any, None]] | None = None,
        witness: Callable[[], Liveness] = ByHeartbeat,
    ) -> None:
        """Nothing happens before `start`.

        Args:
            url: of Redis.
            operations: for this member, `pod#boot`.
            connections: whoever holds them.
            limit: shards that this pod holds at most.
            votes: asks Discord in each round and tells what it said; runs in the driver's loop.
            witness: makes who else says that a pod is over, in the driver's loop.
        """
        shared = operations.numbers  # the lease is as long as what Redis counts
        seconds = {"ttl_s": shared.ttl_ms, "spacing_s": shared.spacing_ms, "settle_s": shared.settle_ms}
        numbers = v.Numbers(**{name: number_ms / 1000 for name, number_ms in seconds.items()}, limit=limit)
        self.state = v.State(operations.member, numbers, operations.credentials)
        self._url, self._ops, self._connections = url, operations, connections
        self._votes, self._make_witness, self._first_seen = votes, witness, FirstSeen()
        self._view = View()  # as Redis told it
        self._teller = Teller()
        self._gate = Gate(self._ask_gate, self._teller.gate)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._beside = Beside()
        self._one_at_a_time: asyncio.Lock | None = None
        self._reached = self._to_drain = self._to_end = self._gone = False
        self._waiting = Waiting()
        self.turned_s = time.monotonic()
        """When the loop turned last, by the monotonic clock."""
        self.on_fault: Callable[[str], None] = logger.critical
        """Told, in the loop's thread, why it ended without having been asked to."""
        self._thread = threading.Thread(target=self._run, name="headroom-shards", daemon=True)

    # -- from other threads

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def tell(self, told: v.Told) -> None:
        """Discord answered."""
        self._from_outside(lambda: self.feed(told))

    def begin_to_drain(self) -> None:
        """Begin to hand every shard over; waits for nothing. Before the loop runs it is the first that it does."""
        self._to_drain = True
        self._from_outside(lambda: self.feed(v.DrainAsked()))

    def drain(self, timeout_s: float) -> bool:
        """Hand every shard over and leave. Returns whether that was done in time; `stop` ends the rest."""
        self.begin_to_drain()
        give_up_s = time.monotonic() + timeout_s
        while self._thread.is_alive() and not self._gone and time.monotonic() < give_up_s:
            time.sleep(0.02)
        return self._gone

    def stop(self, timeout_s: float = 5.0) -> None:
        """End at once. What is still held becomes free when the lease is over."""
        self._to_end = True
        over = self._over
        if over is not None:
            self._from_outside(over.set)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def figures(self) -> Figures:
        """How this member stands."""
        return self._teller.figures(self.state, self._waiting)

    def _from_outside(self, what: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None and loop.is_running():
            loop.call_soon_threadsafe(what)

    # -- the loop

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception as error:
            logger.exception("shards: the loop has ended")
            self.on_fault(f"the loop of its shards has ended: {error!r}")

    async def _main(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        async with AsyncExitStack() as ends:
            self._client = self._connect(ANSWER_S)
            ends.push_async_callback(self._client.aclose)
            self._witness = self._make_witness()
            ends.push_async_callback(self._witness.close)
            self._connections.begin(self)
            ends.push_async_callback(self._connections.end)
            ends.callback(self._beside.cancel)
            await self._turn(self._over)

    async def _turn(self, over: asyncio.Event) -> None:
        self._beside.spawn(listen(partial(self._connect, None), self._ops.keys.changed(), self._heard))
        if self._votes is not None:
            self._beside.spawn(self._votes(self.feed))
        if self._to_drain:
            self.feed(v.DrainAsked())
        while not (self._to_end or over.is_set()):
            self.turned_s = time.monotonic()
            self.feed(v.Ticked(self.turned_s))
            self._waiting = self._connections.waiting()
            try:
                await asyncio.wait_for(over.wait(), TICK_S)
            except asyncio.TimeoutError:  # noqa: UP041 - another class before Python 3.11
                continue

    def _connect(self, timeout_s: float | None) -> redis.asyncio.Redis:
        return redis.asyncio.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            self._url,
            socket_timeout=timeout_s,
            socket_connect_timeout=ANSWER_S,
            retry=Retry(NoBackoff(), 0),
            single_connection_client=timeout_s is not None,
        )

    # -- events and commands

    def feed(self, event: v.Event) -> None:
        """Let something happen; in the loop."""
        self.state, commands = step(self.state, event)
        self._teller.heard(event, self.state)
        for command in commands:
            self._teller.does(command)
            self._carry_out(command)

    def _heard(self) -> None:
        self.feed(v.Heard(time.monotonic()))

    def opened(self, slot: Slot, fence: int) -> None:
        """See `connection.Owner`."""
        self.feed(v.Opened(slot, fence))

    def lost(self, slot: Slot, fence: int) -> None:
        """See `connection.Owner`."""
        self.feed(v.Lost(slot, fence))

    def closed(self, slot: Slot, fence: int, fatal: str = "", code: int = 0) -> None:
        """See `connection.Owner`."""
        self.feed(v.Closed(slot, fence, fatal, code))

    def _carry_out(self, command: v.Command) -> None:
        match command:
            case v.Open(slot, total, fence):
                self._connections.open(slot, total, fence)
            case v.Close(slot, fence, how):
                self._connections.close(slot, fence, how)
            case _:
                self._beside.spawn(self._send(command))

    async def _send(  # noqa: C901, PLR0912 - one line for each command
        self, command: v.Sent
    ) -> None:
        ops, state = self._ops, self.state
        try:
            match command:
                case v.SendSync():
                    synced = await self._witnessed(read_synced(await self.ask(sync_call(state, ops))))
                    self.feed(v.SyncAnswered(time.monotonic(), synced))
                case v.SendClaim(version, most, shards):
                    fences = tuple(await self.ask(ops.claim(version, most, shards)))
                    self.feed(v.Claimed(time.monotonic(), version, shards, fences))
                case v.SendRelease(slot, fence):
                    await self.ask(ops.release(*slot, fence))
                    self.feed(v.Released(slot))
                case v.SendFlip(version):
                    if await self.ask(ops.flip(version)):
                        self._teller.changed("active", state, version)
                        logger.info("shards: target %d serves from now on", version)
                case v.SendAbort(version, why):
                    if await self.ask(ops.abort(version, why)):
                        self._teller.changed("aborted", state, version)
                        logger.warning("shards: target %d is given up: %s", version, why)
                case v.SendStop(slot, fence, stop):
                    if await self.ask(ops.stop(*slot, fence, stop)):
                        logger.error("shards: stopped for all pods: %s", stop.why)
                    self.feed(v.Stopped(slot))
                case v.SendBudget(told):
                    shown = told.day_total, told.remaining, told.reset_after_ms, told.concurrency
                    await self.ask(ops.budget(*shown))
                case v.SendVote(total, rounds):
                    outcome = read_outcome(await self.ask(ops.vote(total, rounds)))
                    self._teller.voted(total, outcome)
                case v.SendLeave():
                    try:
                        await self.ask(ops.leave())
                    finally:
                        self._gone = True  # else it is dead to the others when its TTL is over
        except Exception as error:
            if not isinstance(error, ERRORS):  # an answer that makes no sense is none
                logger.exception("shards: %s failed", type(command).__name__)
            self._lost(error)
            if isinstance(command, v.Needed):
                self.feed(v.Unanswered(command))

    async def _witnessed(self, synced: Synced) -> Synced:
        """Add what the witness says of the members. Who is over for certain leaves, whoever says so for it."""
        self._view = synced.view or self._view
        reading = await self._witness.read()
        seen = self._first_seen.note([member.name for member in self._view.members], time.monotonic())
        merged = merge(self._view, reading, seen)
        for name in merged.over:
            logger.info("shards: %s is over, as the witness says", name)
            await self.ask(self._ops.leave(name))
        return synced._replace(view=merged.view)

    # -- the gate

    async def may_identify(self, slot: Slot, fence: int) -> bool:
        """See `connection.Owner`."""
        return await self._gate.wait(slot, self._ops.identify(*slot, fence), lambda: self.state.keeps(slot, fence))

    async def _ask_gate(self, call: Call) -> int | None:
        try:
            return int(await self.ask(call))
        except ERRORS as error:
            self._lost(error)
            return None

    # -- Redis

    async def ask(self, call: Call) -> Any:
        """Carry an operation out: its raw answer. Raises what Redis or the way to it raises, within a second or two."""
        if self._one_at_a_time is None:
            raise OSError("not started")
        async with self._one_at_a_time:
            if not self._reached:
                await self._client.aclose()  # it may lead to a server that is a replica now
                self._ops.server = str((await self._client.info("server"))["run_id"])
                self._reached = True
            command = self._ops.command(call)
            try:
                return await self._answer(command)
            except NoScriptError:
                await self._client.script_load(self._ops.script(call.name).source)
                return await self._answer(command)

    def _answer(self, command: tuple[Any, ...]) -> Awaitable[Any]:
        return cast("Awaitable[Any]", self._client.execute_command(*command))  # pyright: ignore[reportUnknownMemberType]

    def _lost(self, error: BaseException) -> None:
        """Ask the next connection which server it is."""
        if self._reached:
            logger.warning("shards: Redis does not answer (%s); every connection stays", error)
        self._reached = False
