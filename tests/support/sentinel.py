"""A master with its replicas, watched by real Sentinel processes that fail over within seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import redis

from app.local.servers import Server, free_port, program
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.local.guard import Guard, Process
    from app.local.servers import Kind

NAME = "fleet"
"""The name under which the Sentinels know the master."""
DOWN_AFTER_MS = 1000
PATIENCE_S = 30.0


def role(server: Server) -> str:
    """What a server takes itself for: master or slave; nothing while a Sentinel cuts its connections."""
    with server.client() as client:
        try:
            return str(client.info("replication")["role"])
        except redis.ConnectionError:
            return ""


class Watched:
    """One master, one replica, three Sentinels; all end with the guard."""

    def __init__(self, guard: Guard, kind: Kind = "valkey", *, options: Mapping[str, str] | None = None) -> None:
        """Prepare; `options` are configuration directives of the two servers."""
        self.servers = [Server(guard, kind, options=options) for _ in range(2)]
        self.sentinels: list[Process] = []
        self.ports: list[int] = []
        self._guard = guard
        self._kind: Kind = kind

    @property
    def url(self) -> str:
        """The broker's address, as Celery wants it."""
        return ";".join(f"sentinel://127.0.0.1:{port}/0" for port in self.ports)

    @property
    def options(self) -> dict[str, Any]:
        """The `broker_transport_options` that go with the address."""
        return {"master_name": NAME}

    def start(self) -> Watched:
        """Start all and wait until each Sentinel knows the replica and the others; returns itself."""
        master, replica = self.servers
        master.start()
        replica.start()
        with replica.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", str(master.port))
        for _ in range(3):
            self._start_sentinel(master.port)
        wait_until(lambda: all(map(self._knows_all, self.ports)), PATIENCE_S, what="the Sentinels to know each other")
        return self

    def end(self) -> None:
        """End all of them."""
        for process in self.sentinels:
            self._guard.end(process, patience_s=0)
        for server in self.servers:
            server.kill()

    def master(self) -> Server:
        """The server that most Sentinels take for the master now."""
        ports = [self._ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1] for port in self.ports]
        port = int(max(ports, key=ports.count))
        return next(server for server in self.servers if server.port == port)

    def replica(self) -> Server:
        """The other one."""
        master = self.master()
        return next(server for server in self.servers if server is not master)

    def lag(self) -> int:
        """Bytes that the replica has not got yet, as the master sees it; -1 while it has none."""
        with self.master().client() as client:
            found = client.info("replication")
        if not found.get("connected_slaves") or found["slave0"]["state"] != "online":
            return -1
        return int(found["master_repl_offset"]) - int(found["slave0"]["offset"])

    def wait_failed_over(self, old: Server) -> Server:
        """Wait until the Sentinels agree on another master, and that takes writes; returns it."""
        wait_until(lambda: self.master() is not old, PATIENCE_S, what="the Sentinels to agree on a new master")
        new = self.master()
        wait_until(lambda: role(new) == "master", PATIENCE_S, what="the new master to take writes")
        return new

    def switch(self) -> Server:
        """Ask for a fail-over although the master is well; returns the new master, once the old one is a replica.

        For some ten seconds in between there are two: the Sentinels give the old one time to notice by itself.
        """
        old = self.master()
        wait_until(lambda: self.lag() >= 0, PATIENCE_S, what="a replica that is online")
        wait_until(self._failing_over, PATIENCE_S, what="a Sentinel that begins a fail-over", every_s=0.2)
        new = self.wait_failed_over(old)
        wait_until(lambda: role(old) == "slave", PATIENCE_S, what="the old master to become a replica")
        return new

    def _failing_over(self) -> bool:
        try:
            self._ask(self.ports[0], "SENTINEL", "FAILOVER", NAME)
        except redis.ResponseError as error:  # NOGOODSLAVE: it has not heard from the replica yet
            return "INPROG" in str(error)
        return True

    def _start_sentinel(self, master_port: int) -> None:
        port = free_port()
        folder = self._guard.folder("sentinel")
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {NAME} 127.0.0.1 {master_port} 2\n"
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {NAME} 6000\n"
        )
        found = program(self._kind)
        assert found is not None
        self.sentinels.append(
            self._guard.start("sentinel", [found, str(config), "--sentinel"], log=folder / "log", cwd=folder)
        )
        self.ports.append(port)

    def _knows_all(self, port: int) -> bool:
        try:
            found = self._ask(port, "SENTINEL", "MASTER", NAME)
        except redis.ConnectionError:
            return False
        facts = dict(zip(found[::2], found[1::2], strict=True))
        return (facts["num-slaves"], facts["num-other-sentinels"], facts["flags"]) == ("1", "2", "master")

    @staticmethod
    def _ask(port: int, *command: str) -> Any:
        """Ask one Sentinel; the answer as it came, which redis-py would make something else of."""
        with redis.Redis(port=port, protocol=2, decode_responses=True) as client:
            connection = cast("Any", client.connection_pool.get_connection())
            try:
                connection.send_command(*command)
                return connection.read_response()
            finally:
                client.connection_pool.release(connection)
