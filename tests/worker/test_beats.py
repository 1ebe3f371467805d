"""Several beats on one schedule, as real processes that are killed, frozen and cut off."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

import pytest

from app.local.proxy import Proxy
from app.local.toxics import Timeout
from tests.support.beats import Beats
from tests.support.servers import Client
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from app.local.guard import Guard
    from tests.support.servers import StartServer


@pytest.fixture
def beats(guard: Guard, valkey: Client, tmp_path: Path) -> Iterator[Beats]:
    """Beats on an empty Valkey."""
    made = Beats(guard, valkey, valkey.url, tmp_path)
    yield made
    made.end()


def test_of_three_beats_one_schedules_whatever_befalls_who_leads(beats: Beats) -> None:
    for _ in range(3):
        beats.start()
    for round_number in range(4):
        leader = beats.wait_leader()
        beats.wait_runs("each", 5)
        process = beats.running[leader]
        if round_number == 0:
            process.terminate()
            assert process.wait(10) == 0
        elif round_number == 1:
            process.kill()
        else:
            process.pause()
        if not process.running:
            beats.start()
        beats.wait_leader(other_than=leader)
        beats.wait_runs("each", 5)
        process.resume()
        if process.running:
            beats.wait_standby(leader)
    beats.wait_runs("each", 5)
    beats.stop()
    runs = beats.check()
    assert {name for name, _ in runs} == {"each", "last", "skip"}
    assert sum(name == "each" for name, _ in runs) == beats.runs("each")


def test_a_beat_that_is_cut_off_makes_room_and_comes_back(beats: Beats, valkey: Client) -> None:
    with Proxy(("127.0.0.1", valkey.server.port)) as way:
        cut_off = beats.start(name="far", url=f"redis://127.0.0.1:{way.port}/0")
        beats.wait_runs("each", 3)
        beats.start(name="near")
        beats.wait_standby("near")
        with way.toxic(Timeout()):
            assert beats.wait_leader(other_than="far") == "near"
            beats.wait_runs("each", 5)
        beats.wait_standby("far")
        way.refuse()
        wait_until(lambda: cut_off.read_log().count("Redis failed") >= 2, what=beats.logs)
        way.accept()
        beats.running["near"].terminate()
        assert beats.wait_leader(other_than="near") == "far"
        beats.wait_runs("each", 3)
        assert cut_off.running
    beats.check()
    assert "Traceback" not in beats.logs()


def test_a_redis_that_restarts_with_its_data_loses_no_run(
    guard: Guard, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(options={"appendonly": "yes", "appendfsync": "always"})
    with Client(server) as client:
        beats = Beats(guard, client, server.url, tmp_path)
        try:
            beats.start()
            beats.start()
            beats.wait_runs("each", 5)
            server.kill()
            server.start()
            beats.wait_runs("each", 5)
            beats.check()
        finally:
            beats.end()


def test_a_redis_that_lost_its_data_is_told_what_has_run(beats: Beats) -> None:
    beats.start()
    beats.wait_runs("each", 3)
    beats.start(name="young")
    beats.wait_standby("young")
    leader = beats.leader()
    for _ in range(3):
        before = beats.published()
        beats.client.flushall()
        beats.wait_runs("each", 3)
        assert beats.leader() == leader
        assert not before & beats.check()


def test_the_clock_of_a_pod_is_no_matter(beats: Beats, valkey: Client) -> None:
    for off_s in (-600, 600):
        beats.start(name=f"off{off_s}", CLOCK_OFF_S=str(off_s))
        beats.wait_leader()
        beats.wait_runs("last", 2)
        beats.stop()
    now = datetime.fromtimestamp(beats.look().server_us / 1_000_000, UTC)
    messages = [json.loads(raw)["headers"] for raw in cast("list[bytes]", valkey.lrange("last", 0, -1))]
    assert len(messages) >= 4
    for headers in messages:
        due, expires = (datetime.fromisoformat(headers[name]) for name in ("beat_due", "expires"))
        assert timedelta() < now - due < timedelta(minutes=2)
        assert timedelta(seconds=59) < expires - due < timedelta(seconds=90)
    beats.check()


def test_beats_end_in_order_and_leave_nothing_but_the_records(beats: Beats) -> None:
    started = [beats.start()]
    beats.wait_leader()
    started.append(beats.start(name="other"))
    beats.wait_standby("other")
    beats.wait_runs("each", 2)
    for process in started:
        process.send(signal.SIGTERM)
    assert [process.wait(10) for process in started] == [0, 0]
    seen = beats.look()
    assert (seen.leader, seen.standbys, set(seen.records)) == ("", (), {"each", "last", "skip"})
    assert "Traceback" not in beats.logs()
