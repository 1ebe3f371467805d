"""A process with idle shards that says what each costs: `python -m tests.agreement.idle URL SHARDS [AUTHORITY]`."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from pathlib import Path

from tasks.shards.gateway.connection import Connection
from tasks.shards.gateway.session import Shard
from tasks.shards.gateway.wire import frugal_tls
from tests.shards.listening import TOKEN, Listener, until


def resident_bytes() -> int:
    """Memory of this process."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def main(url: str, shards: int, authority: str) -> None:
    """Print KiB a shard, threads and tasks."""
    tls = frugal_tls(authority) if authority else None
    ears = [Listener() for _ in range(shards)]
    held = [Connection(Shard(url, TOKEN, 1, n, shards), ear, tls=tls) for n, ear in enumerate(ears)]
    held[0].start()
    await until(lambda: ears[0].counts["settled"])
    gc.collect()
    before = resident_bytes()
    for each in held[1:]:
        each.start()
    await until(lambda: all(ear.counts["settled"] for ear in ears), within_s=60.0)
    gc.collect()
    kib = (resident_bytes() - before) / 1024 / (shards - 1)
    print(f"{kib:.1f} {threading.active_count()} {sum(ear.counts['lost'] for ear in ears)}")  # noqa: T201
    await asyncio.gather(*(each.close(4000) for each in held))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), (*sys.argv[3:], "")[0]))
