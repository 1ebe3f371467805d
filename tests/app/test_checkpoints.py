"""`python -m app checkpoints`: what a person and what a program read."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from app.__main__ import main
from tasks.checkpoints.redis_store import RedisStore
from throttle.keys import Keys

if TYPE_CHECKING:
    from tests.support.servers import Client


@pytest.fixture
def store(valkey: Client, monkeypatch: pytest.MonkeyPatch) -> RedisStore:
    """The store of the fleet that the command will look at."""
    for variable in ("CHECKPOINT_STORE", "THROTTLE_FLEET"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("REDIS_URL", valkey.url)
    return RedisStore(valkey, Keys(), 60)


def test_none_is_an_empty_list(store: RedisStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["checkpoints"]) == 0
    assert capsys.readouterr().out.split() == ["ID", "TASK", "STATUS", "PROGRESS", "AGE", "BYTES"]


def test_each_is_a_line_that_cannot_command_a_terminal(store: RedisStore, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(250):
        store.open(f"id-{number}", "jobs.index").save("running", 0.62, b"{}")
    store.open("\x1b[2J\n", "\x1b]0;title\x07").save("failed", 1.0, b"")
    assert main(["checkpoints"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 252
    assert not [line for line in lines if not line.isprintable()]
    (line,) = (line for line in lines if line.startswith("id-7 "))
    assert re.fullmatch(r"id-7 +jobs.index +running +62.0 % +\d+ s +2", line)
    assert main(["checkpoints", "--json"]) == 0
    found = {entry["id"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert found["\x1b[2J\n"]["status"] == "failed"
    assert found["id-7"] | {"age_s": 0} == {
        "id": "id-7", "task": "jobs.index", "status": "running", "progress": 0.62, "age_s": 0, "bytes": 2,
    }  # fmt: skip


def test_a_store_that_is_away_is_one_line(
    store: RedisStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting in ({"CHECKPOINT_STORE": "etcd://127.0.0.1:1"}, {"REDIS_URL": "redis://127.0.0.1:1"}):
        for variable, value in setting.items():
            monkeypatch.setenv(variable, value)
        assert main(["checkpoints"]) == 69
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("headroom: ")
        assert len(said.err.splitlines()) == 1


def test_a_setting_that_is_not_allowed_is_one_line(
    store: RedisStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHECKPOINT_STORE", "zookeeper")
    assert main(["checkpoints"]) == 2
    assert capsys.readouterr().err.startswith("headroom: CHECKPOINT_STORE='zookeeper': allowed is redis, or etcd://")
