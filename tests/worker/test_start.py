# pyright: basic
"""Starts that are refused: one clear line on standard error, exit code 1, no traceback, nothing lost.

And what `install` does to an app, and does not.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

import throttle
from app.local.processes import ROOT
from app.local.servers import free_port
from throttle.errors import ConfigurationError, RedisTooOld
from throttle.worker import connecting, installing
from throttle.worker.take import SentinelTransport, TLSTransport, Transport

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import Client, StartServer


def start(url: str, folder: Path, *, app: str = "tests.worker.workload", **settings: str) -> tuple[int, str]:
    """Start a worker that is expected to refuse; its exit code and what it wrote to standard error."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "REDIS_URL": url, "POD_NAME": "pod", **settings}
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "celery", "-A", app, "worker", "--pool", "solo"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return answer.returncode, answer.stderr


def refused(answer: tuple[int, str]) -> str:
    """The one line of a refused start."""
    code, text = answer
    assert code == 1, text
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) == 1, text
    assert lines[0].startswith("headroom: ")
    return lines[0]


@pytest.mark.parametrize("switched_off", [["task_acks_late"], ["task_acks_late", "task_reject_on_worker_lost"]])
def test_late_acknowledgement_switched_off_is_refused_with_both_names(
    valkey: Client, tmp_path: Path, switched_off: list[str]
) -> None:
    line = refused(start(valkey.url, tmp_path, WORKLOAD_CONFIG=json.dumps(dict.fromkeys(switched_off, False))))
    assert "task_acks_late" in line
    assert "task_reject_on_worker_lost" in line
    assert "allowed is on" in line


def test_no_redis_is_waited_for_and_then_refused(tmp_path: Path) -> None:
    line = refused(start(f"redis://127.0.0.1:{free_port()}/0", tmp_path, THROTTLE_STARTUP_S="1"))
    assert "no Redis at" in line
    assert "within 1 s (THROTTLE_STARTUP_S)" in line


def test_a_wrong_password_is_refused_at_once(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    with server.client() as client:
        client.config_set("requirepass", "right")
        line = refused(start(server.url.replace("://", "://:wrong@"), tmp_path))
        assert "refuses us" in line
        assert "wrong@" not in line
        client.execute_command("AUTH", "right")
        assert client.keys("*") == []


@pytest.mark.parametrize(
    ("server", "fits"),
    [
        ({"redis_version": "6.0.16"}, False),
        ({"redis_version": "6.2.0"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "7.1.0"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.5"}, True),
        ({}, True),
    ],
)
def test_a_redis_that_is_too_old_is_refused(server: dict[str, Any], *, fits: bool) -> None:
    if fits:
        connecting.check_version(server, "here")
    else:
        with pytest.raises(RedisTooOld, match=r"too old: allowed are Redis 6.2 or newer and Valkey 7.2 or newer"):
            connecting.check_version(server, "here")


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("THROTTLE_RATIO", "0", "above 0 and up to 1"),
        ("THROTTLE_RATIO", "1.5", "above 0 and up to 1"),
        ("THROTTLE_RATIO", "abc", "above 0 and up to 1"),
        ("THROTTLE_TTL", "0", "from 3"),
        ("POD_NAME", "a#b", "a name without '#'"),
    ],
)
def test_a_bad_setting_is_one_line(variable: str, value: str, allowed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        throttle.install(Celery("bad", set_as_current=False))
    message = str(caught.value)
    assert "\n" not in message
    assert variable in message
    assert value in message
    assert allowed in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gate": "door"}, "gate='door': allowed is take or requeue"),
        ({"critical_queues": "critical"}, "allowed is a sequence of queue names"),
        ({"ratio": 0}, "ratio=0: "),
        ({"ttl_s": 2}, "ttl_s=2: "),
    ],
)
def test_a_bad_argument_is_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        throttle.install(Celery("bad", set_as_current=False), **arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_installing_twice_is_the_same_as_once_and_otherwise_an_error() -> None:
    app = throttle.install(Celery("twice", set_as_current=False))
    assert throttle.install(app) is app
    with pytest.raises(ConfigurationError, match="allowed is one call for an app"):
        throttle.install(app, ratio=0.5)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_defaults_are_set_and_choices_are_left(*, late: bool) -> None:
    app = Celery("choices", broker="redis://localhost:1/0", set_as_current=False)
    if late:
        throttle.install(app)
    app.config_from_object({"worker_prefetch_multiplier": 4})
    if not late:
        throttle.install(app)
    conf = app.conf
    assert conf.worker_prefetch_multiplier == 4
    assert (conf.task_acks_late, conf.task_reject_on_worker_lost) == (True, True)
    assert set(installed(app).changed) >= {"task_acks_late", "task_reject_on_worker_lost"}
    assert "worker_prefetch_multiplier" not in installed(app).changed
    installing.check(app)


def installed(app: Any) -> installing.Installation:
    """What `install` left on an app."""
    return app.throttle


@pytest.mark.parametrize(
    ("url", "transport"),
    [
        ("redis://localhost:1/0", Transport),
        ("rediss://localhost:1/0", TLSTransport),
        ("sentinel://localhost:1;sentinel://localhost:2", SentinelTransport),
    ],
)
def test_the_transport_fits_the_address(url: str, transport: type) -> None:
    app: Any = throttle.install(Celery("addresses", broker=url, set_as_current=False))
    connection = app.connection_for_write()
    assert type(connection.transport) is transport
    assert bool(connection.ssl) == url.startswith("rediss")
    assert connection.as_uri().partition(":")[0] == url.partition(":")[0]
    assert "headroom" in transport.Channel.from_transport_options


def test_a_producer_needs_no_membership(valkey: Client, caplog: pytest.LogCaptureFixture) -> None:
    app: Any = throttle.install(Celery("producer", broker=valkey.url, set_as_current=False))
    with caplog.at_level(logging.DEBUG, logger="throttle"):
        app.send_task("anything", queue="critical")
    assert valkey.llen("critical") == 1
    assert not valkey.keys("*pods:alive*")
    assert app.throttle.driver is None
    app.close()


def test_global_keyprefix_is_before_every_key(valkey: Client) -> None:
    app: Any = throttle.install(Celery("prefixed", broker=valkey.url, set_as_current=False))
    app.conf.broker_transport_options = {**app.conf.broker_transport_options, "global_keyprefix": "here:"}
    app.send_task("anything", queue="somewhere")
    assert valkey.llen("here:somewhere") == 1
    assert valkey.keys("here:*") == valkey.keys("*")
    app.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://localhost:abc/0", "Port could not be cast to integer value as 'abc'"),
        ("redis://localhost:1/abc", "invalid literal for int() with base 10: 'abc'"),
        ("amqp://guest:secret@localhost//", "amqp is no scheme of Redis"),
        ("memory://", "memory is no scheme of Redis"),
        ("sentinel://localhost:1;http://localhost", "http is no scheme of Redis"),
    ],
)
def test_an_address_that_is_none_is_one_line(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        installing.check_address(url)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "allowed is one such as redis://host:6379/0" in str(caught.value)


@pytest.mark.parametrize("gate", ["take", "requeue"])
@pytest.mark.parametrize("broker", ["redis://:secret@one;redis://two", ["redis://one", "rediss://:secret@two"]])
def test_two_redis_are_no_fleet(broker: Any, gate: str) -> None:
    """Kombu would fail over from one to the other, pod by pod; each Redis would have a fleet of its own."""
    app = throttle.install(Celery("two", broker=broker, set_as_current=False), gate=gate)
    with pytest.raises(ConfigurationError, match="allowed is one address, or those of Sentinels") as caught:
        installing.check(app)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("gate", ["take", "requeue"])
def test_what_is_read_from_and_written_to_must_be_one(gate: str) -> None:
    addresses = {"broker_read_url": "redis://one", "broker_write_url": "redis://:secret@two"}
    app = Celery("two", set_as_current=False)
    app.conf.update(addresses)
    throttle.install(app, gate=gate)
    with pytest.raises(ConfigurationError, match=r"redis://\*\*@two' differ: .* allowed is the same for both"):
        installing.check(app)


@pytest.mark.parametrize("arguments", ["ratio=2", "critical_queues='critical'", "critical_queues=[1]", "gate='x'"])
def test_a_bad_argument_in_an_app_of_ones_own_is_one_line(arguments: str, tmp_path: Path) -> None:
    """`celery -A shop worker`, as a user starts it."""
    (tmp_path / "shop.py").write_text(
        "import celery, throttle\n"
        "app = celery.Celery('shop', broker='redis://localhost:1')\n"
        f"throttle.install(app, {arguments})\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "shop", "worker"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("headroom: ")
    assert done.stderr.count("\n") == 1
