"""`python -m app shards` on a real server, filled through the real operations."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from app.__main__ import main
from app.local.discord.bot import Bot
from app.local.discord.rest import RestStandIn, Scripted
from app.local.processes import ROOT
from app.local.servers import free_port
from app.local.waiting import wait_until
from app.settings import variables
from app.shards import commands
from app.shards.commands import Reached
from tasks.shards.answers import Stop
from tasks.shards.keys import Keys
from tasks.shards.operations import Hold, Known, Numbers, Operations, read_synced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Client

BOT, TOKEN = "123456789012345678", "stand-in.Token"
NUMBERS = Numbers(ttl_ms=9000)


class Fleet:
    """Members of a cluster, each moved by hand."""

    def __init__(self, client: Client) -> None:
        """None yet."""
        self.client = client
        self.members: dict[str, Reached] = {}
        self.holds: dict[str, list[Hold]] = {}

    def sync(self, name: str, *, draining: bool = False, limit: int = 1_000_000) -> Any:
        """A SYNC of `name`, which joins by its first one."""
        reached = self.members.setdefault(name, Reached(self.client, Operations(Keys(BOT), NUMBERS, f"{name}#boot")))
        call = reached.operations.sync(Known(), self.holds.get(name, []), limit=limit, draining=draining, seen=-1)
        return read_synced(reached.ask(call))

    def settle(self) -> None:
        """Let the guard of a new cluster be over, as time would."""
        self.client.hdel(Keys(BOT).state(), "guard")

    def claim(self, name: str, version: int, shards: range, *, ready: bool = True) -> None:
        """Claim shards, and tell that they are ready."""
        reached = self.members[name]
        fences = reached.ask(reached.operations.claim(version, 1000, list(shards)))
        held = [Hold(version, shard, fence, ready) for shard, fence in zip(shards, fences, strict=True)]
        self.holds[name] = [*self.holds.get(name, []), *held]
        self.sync(name)

    def budget(self, remaining: int) -> None:
        """What Discord would say of the day."""
        reached = self.members["a"]
        reached.ask(reached.operations.budget(1000, remaining, 7_200_000, 1))


@pytest.fixture
def fleet(valkey: Client, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Two members that have settled, of a bot that is configured."""
    for variable in variables().values():
        monkeypatch.delenv(variable, raising=False)
    for name, value in {"REDIS_URL": valkey.url, "DISCORD_TOKEN": TOKEN, "DISCORD_BOT_ID": BOT}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DISCORD_API_URL", f"http://127.0.0.1:{free_port()}/api/v10")
    made = Fleet(valkey)
    made.sync("a")
    made.sync("b", limit=5)
    made.settle()
    return made


@pytest.fixture
def discord(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestStandIn]:
    """The Discord that the command asks: it recommends 4 shards."""
    with RestStandIn(Bot(TOKEN, shards=4)) as server:
        monkeypatch.setenv("DISCORD_API_URL", server.url)
        yield server


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `shards --json` prints."""
    assert main(["shards", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 1) -> str:
    """The one line with which a command is refused."""
    assert main(["shards", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert TOKEN not in captured.err
    return captured.err


def test_a_cluster_that_nobody_has_joined_is_empty(
    fleet: Fleet, valkey: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    valkey.flushall()
    found = shown(capsys)
    assert (found["active"], found["pending"], found["pods"], found["shards"], found["budget"]) == (
        None,
        None,
        [],
        [],
        None,
    )
    assert not found["whole"]
    assert main(["shards"]) == 0
    assert "none yet" in capsys.readouterr().out
    assert valkey.dbsize() == 0  # a look changes nothing


def test_what_discord_closed_for_good_is_shown_until_a_person_says_retry(
    fleet: Fleet, discord: RestStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.budget(500)
    assert "nothing is stopped" in refused(capsys, "retry")
    assert main(["shards", "target", "2"]) == 0
    capsys.readouterr()
    version = shown(capsys)["pending"]["version"]
    fleet.claim("a", version, range(2))
    a = fleet.members["a"]
    for scope, code, why in (("c0ffee", 4014, "closed with 4014: not these intents"), (f"v{version}", 4011, "more")):
        assert a.ask(a.operations.stop(version, 0, fleet.holds["a"][0].fence, Stop(scope, code, 0, why)))
    stopped = {(each["what"], each["code"], each["why"]) for each in shown(capsys)["stopped"]}
    assert stopped == {
        ("credentials", 4014, "closed with 4014: not these intents"),
        (f"version {version}", 4011, "more"),
    }
    assert main(["shards"]) == 0
    printed = capsys.readouterr().out
    assert "these credentials, by Discord: closed with 4014: not these intents; put it right, then" in printed
    assert main(["shards", "retry"]) == 0
    assert capsys.readouterr().out == "the pods try again\n"
    assert shown(capsys)["stopped"] == []


def test_a_target_from_the_wish_to_the_whole(
    fleet: Fleet, discord: RestStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.budget(500)
    assert main(["shards", "target", "4"]) == 0
    assert capsys.readouterr().out == "4 shards are pending\n"
    pending = shown(capsys)["pending"]
    assert (pending["total"], pending["ready"], pending["cap"]) == (4, 0, 2)
    assert "another target is pending" in refused(capsys, "target", "8")
    assert "another target is pending" in refused(capsys, "target", "auto")
    fleet.claim("a", pending["version"], range(2))
    fleet.claim("b", pending["version"], range(2, 4), ready=False)
    states = {(s["shard"], s["state"], s["pod"], s["target"]) for s in shown(capsys)["shards"]}
    assert states == {
        (0, "ready", "a", "pending"), (1, "ready", "a", "pending"),
        (2, "initialising", "b", "pending"), (3, "initialising", "b", "pending"),
    }  # fmt: skip
    fleet.holds["b"] = [hold._replace(ready=True) for hold in fleet.holds["b"]]
    fleet.sync("b", limit=5)
    member = fleet.members["a"]
    assert member.ask(member.operations.flip(pending["version"])) == 1
    found = shown(capsys)
    assert found["whole"]
    assert found["active"] == {**pending, "ready": 4, "since_ms": found["active"]["since_ms"]}
    assert found["pending"] is None
    assert [(pod["pod"], pod["shards"], pod["limit"]) for pod in found["pods"]] == [("a", 2, None), ("b", 2, 5)]
    assert main(["shards", "target", "4"]) == 0
    assert capsys.readouterr().out == "4 shards are the target already\n"
    assert main(["shards", "target", "auto"]) == 0
    assert capsys.readouterr().out == "the pods' votes decide\n"
    assert shown(capsys)["active"]["by"] == "votes"
    assert main(["shards", "target", "4"]) == 0
    assert capsys.readouterr().out == "4 shards are the target already\n"
    fleet.sync("b", draining=True, limit=5)
    assert main(["shards"]) == 0
    table = capsys.readouterr().out
    assert "4 shards, 4 ready" in table
    assert "500 of 1000 left for 2.0 h, 1 at a time" in table
    assert "draining" in table
    assert "set by a person" in table
    assert TOKEN not in table


def test_a_pending_target_is_given_up(fleet: Fleet, discord: RestStandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no target is pending" in refused(capsys, "abort")
    fleet.budget(500)
    assert main(["shards", "target", "4"]) == 0
    assert main(["shards", "abort"]) == 0
    assert capsys.readouterr().out.endswith("the pending target is given up\n")
    found = shown(capsys)
    assert found["pending"] is None
    assert "by a person" in found["note"]


def test_a_wish_is_refused_with_its_reason(
    fleet: Fleet, discord: RestStandIn, valkey: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no pod has asked Discord yet" in refused(capsys, "target", "4")
    fleet.budget(3)
    assert "do not pay for it" in refused(capsys, "target", "4")
    valkey.flushall()
    fleet.sync("a")
    fleet.budget(500)
    assert "the cluster is guarded" in refused(capsys, "target", "4")
    assert shown(capsys)["guard_ms"] > 0
    assert shown(capsys)["pending"] is None


def test_discord_is_asked_what_it_allows(
    fleet: Fleet, discord: RestStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.budget(900)
    assert "too few" in refused(capsys, "target", "1")
    discord.bot.concurrency, discord.bot.shards = 16, 64
    assert "a multiple of 64" in refused(capsys, "target", "65")
    discord.script.append(Scripted(403))
    assert "it answered 403 (--unasked does without it)" in refused(capsys, "target", "64")
    discord.bot.token = "another"  # noqa: S105 - of no bot
    assert "the token in DISCORD_TOKEN is not valid" in refused(capsys, "target", "64")
    asked = discord.requests
    assert main(["shards", "target", "65", "--unasked"]) == 0
    assert discord.requests == asked


@pytest.mark.parametrize("total", ["0", "-1", "16385", "many"])
def test_an_absurd_number_is_asked_wrongly(fleet: Fleet, total: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["shards", "target", "--", total])
    assert ended.value.code == 2
    assert "from 1 to 16384" in capsys.readouterr().err


def test_without_a_bot_nothing_is_asked(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DISCORD_TOKEN")
    assert "DISCORD_BOT_ID is set and DISCORD_TOKEN is not" in refused(capsys, code=2)
    monkeypatch.delenv("DISCORD_BOT_ID")
    assert "no bot is configured" in refused(capsys, code=2)


def test_a_redis_that_is_away_is_one_line(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    assert "Redis failed: " in refused(capsys, code=69)


def test_whoever_waits_is_told_for_whom_and_the_wait_ends(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "SILENT_S", 0.05)
    monkeypatch.setattr(commands, "DISCORD_S", 0.6)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("DISCORD_API_URL", f"http://{where}/api/v10")
        assert main(["shards", "target", "4"]) == 1
        captured = capsys.readouterr()
        waited, why = captured.err.splitlines()
        assert waited == f"headroom: waiting for Discord at http://{where}/api/v10, 0.6 s at most"
        assert why.startswith("headroom: Discord cannot be used: no answer in ")
        assert captured.out == ""
        monkeypatch.setattr(commands, "ANSWER_S", 0.3)
        monkeypatch.setenv("REDIS_URL", f"redis://:secret@{where}/0")
        assert main(["shards", "target", "4"]) == 69
        waited, why = capsys.readouterr().err.splitlines()
        assert waited == f"headroom: waiting for Redis at redis://***@{where}/0, 0.3 s at most"
        assert why.startswith("headroom: Redis failed: Timeout")
        assert silent_connections(silent) <= 1 + 2 + 1, "Redis is tried once"


def silent_connections(server: socket.socket) -> int:
    """How many connections wait to be accepted."""
    server.settimeout(0)
    found = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            found += 1
    return found


def test_a_watch_shows_each_change_until_it_is_ended(fleet: Fleet) -> None:
    command = [sys.executable, "-m", "app", "shards", "--json", "--watch"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert len(first["pods"]) == 2
        fleet.sync("c")
        wait_until(lambda: len(json.loads(process.stdout.readline())["pods"]) == 3, 30)  # pyright: ignore[reportOptionalMemberAccess]
        process.terminate()
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
