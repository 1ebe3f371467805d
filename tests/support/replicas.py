"""A server as the replica of another, made and ended by hand: a fail-over without anybody who watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from app.local.proxy import Proxy
    from app.local.servers import Server


def make_replica(server: Server, of: Server | Proxy | None) -> None:
    """Make a server a replica of another, directly or through a proxy, or (None) a master."""
    with server.client() as client:
        client.execute_command("REPLICAOF", *(("NO", "ONE") if of is None else ("127.0.0.1", str(of.port))))


def in_step(master: Server, replica: Server) -> None:
    """Wait until a replica has all that its master has."""

    def has_all() -> bool:
        with master.client() as client:
            found: dict[str, Any] = client.info("replication")  # pyright: ignore[reportAssignmentType]
        slave = found.get("slave0", {})
        return slave.get("port") == replica.port and slave["offset"] == found["master_repl_offset"]

    wait_until(has_all, 15.0, what="the replica to be in step")
