"""Faults: what a stand-in does out of turn, when, to whom, how often. Data; the connection carries them out.

=========  ======================================================================================
at         when
=========  ======================================================================================
connect    before the WebSocket's handshake ends; nobody knows the shard yet
hello      in place of HELLO; nobody knows the shard yet
identify   in place of READY
resume     in place of what was missed and RESUMED
ready      after READY or RESUMED
=========  ======================================================================================

==========  =====================================================================================
do          what
==========  =====================================================================================
close       closes with `code`
reset       RST
silence     nothing at all; after `ready`: nothing comes any more, not even an ACK
deaf        heartbeats get no ACK; events go on
reconnect   op 7
invalid     op 9, `resumable` or not
beat        op 1: asks for a heartbeat
garble      a message that is no JSON
status      (connect) an HTTP answer with `code` in place of the handshake
==========  =====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

At = Literal["connect", "hello", "identify", "resume", "ready"]
Do = Literal["close", "reset", "silence", "deaf", "reconnect", "invalid", "beat", "garble", "status"]
Door = Literal["main", "resume"]

BEFORE_HELLO: frozenset[str] = frozenset({"reset", "silence", "status"})
KNOWS_NOBODY: frozenset[str] = frozenset({"connect", "hello"})


@dataclass(kw_only=True)
class Fault:
    """One line of the script. None in `shard`, `total` and `door`: any."""

    do: Do
    at: At = "ready"
    code: int = 4000
    resumable: bool = False
    shard: int | None = None
    total: int | None = None
    door: Door | None = None
    times: int | None = 1
    """How often; None: for ever."""
    after_s: float = 0.0

    def __post_init__(self) -> None:
        """ValueError: no such fault."""
        if self.do not in get_args(Do) or self.at not in get_args(At):
            raise ValueError(f"{self.do} at {self.at}: allowed are {get_args(Do)} at {get_args(At)}")
        if (self.at == "connect" and self.do not in BEFORE_HELLO) or (self.do == "status" and self.at != "connect"):
            raise ValueError(f"{self.do} at {self.at}: at connect, and there alone, are {sorted(BEFORE_HELLO)}")
        if self.at in KNOWS_NOBODY and (self.shard, self.total) != (None, None):
            raise ValueError(f"at {self.at} no shard is known yet")

    def fits(self, shard: int | None, total: int | None, door: str) -> bool:
        """Whether it is meant for this connection."""
        return self.shard in (None, shard) and self.total in (None, total) and self.door in (None, door)


class Script:
    """Faults that wait for their moment, the first that fits before the others."""

    def __init__(self) -> None:
        """Nothing out of turn."""
        self.faults: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Wait for its moment."""
        self.faults.append(fault)

    def take(self, at: At, shard: int | None, total: int | None, door: str) -> Fault | None:
        """What shall happen now."""
        for fault in self.faults:
            if fault.at == at and fault.fits(shard, total, door):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self.faults.remove(fault)
                return fault
        return None
