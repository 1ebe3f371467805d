"""Counting commands: each that a client sent, once, and by whom."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import redis

from benchmarks.monitor import Monitor, tcp_ports
from throttle.keys import Keys
from throttle.scripts import Operations, Rule

if TYPE_CHECKING:
    from tests.support.servers import Client


def test_it_counts_what_others_send_and_not_what_scripts_call(server: Client) -> None:
    with redis.Redis.from_url(server.url) as other, redis.Redis.from_url(server.url.removesuffix("0") + "1") as second:
        operations = Operations(other, Keys("counted"), Rule(0.8, 30000, 5))
        operations.put("queue", "before")
        second.ping()
        with Monitor(server) as monitor:
            for word in ("one", "two", "three words"):
                operations.put("queue", word)
            other.set("key", "value")
            second.set("key", "value")
            server.get("key")
        other.set("key", "later")
    assert monitor.names() == {"put": 3, "SET": 1}
    assert monitor.names(1) == {"SET": 1}
    assert monitor.by_port().total() == 5
    assert len(monitor.ports_of("put")) == 1


def test_a_message_that_looks_like_a_command_is_none(server: Client) -> None:
    with redis.Redis.from_url(server.url) as other:
        other.ping()
        with Monitor(server) as monitor:
            other.set("key", 'x" [0 lua] "ECHO" "benchmark-monitor-end')
            other.set("key", b"\xff\x00\r\n")
    assert monitor.names() == {"SET": 2}


def test_a_client_is_found_by_its_process_group(server: Client) -> None:
    with redis.Redis.from_url(server.url) as other:
        other.ping()
        with Monitor(server) as monitor:
            other.ping()
        (port,) = monitor.by_port()
        assert tcp_ports([os.getpgrp()])[port] == os.getpgrp()
        assert port not in tcp_ports([])
