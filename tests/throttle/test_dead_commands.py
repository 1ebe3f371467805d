"""`celery -A yours throttle ...` as a person and a program use it."""

# pyright: basic

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
import pytest
from celery import Celery
from click.testing import CliRunner

import throttle
from app.local.servers import free_port
from throttle import commands
from throttle.commands.letters import who
from throttle.dead import PAGE, DeadLetters
from throttle.keys import Keys
from throttle.scripts import Operations, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from click.testing import Result

    from tests.support.servers import Client

A = "a#1"
LETTER: dict[Any, Any] = {"source": "q", "deliveries": 5, "reason": "crashed", "member": A, "at": 0}
REASONS = {"shop.charge": "crashed", "shop.ship": "crashed", "mail.send": "rejected"}


class Shop:
    """An app with the brake, and a member of its fleet that gives messages up."""

    def __init__(self, client: Client, **options: Any) -> None:
        """Join."""
        self.client = client
        self.app = Celery("shop", broker=client.url, set_as_current=False, **options)
        throttle.install(self.app)
        self.operations = Operations(client, Keys(), Rule(0.8, 30_000, 5))
        self.operations.join(A)
        self.letters = DeadLetters(self.operations)
        self.taken = 0

    def bury(self, *tasks: str, queue: str = "celery") -> list[str]:
        """A dead letter for each of these tasks; returns their IDs."""
        before = {letter.id for letter in self.letters}
        for task in tasks:
            self.app.send_task(task, (task,), queue=queue, task_id=f"id of {task}")
            self.taken += 1
            self.operations.take(A, self.taken, (), (queue,))
            self.operations.back(A, self.taken, "dead", deliveries=1, reason=REASONS[task])
        return [letter.id for letter in self.letters if letter.id not in before]

    def ids(self) -> list[str]:
        """IDs of the dead letters."""
        return [letter.id for letter in self.letters]

    def queue(self, name: str = "celery") -> list[str]:
        """Tasks of the messages of a queue, the head first."""
        raw: Any = self.client.lrange(name, 0, -1)
        return [json.loads(message)["headers"]["task"] for message in reversed(raw)]

    def run(self, *arguments: str, typed: str = "") -> Result:
        """Run a command in this process, as Celery's command line does."""
        return run(self.app, *arguments, typed=typed)


def run(app: Any, *arguments: str, typed: str = "") -> Result:
    """A command on an app. Celery's own group is what a process runs; here its context stands in for it."""

    @click.group()
    @click.option("-A", "--app")
    @click.pass_context
    def celery(context: click.Context, **_: Any) -> None:
        context.obj = SimpleNamespace(app=app)

    celery.add_command(commands.command)
    return CliRunner().invoke(celery, ["-A", "shop", "throttle", *arguments], input=typed, catch_exceptions=False)


@pytest.fixture
def shop(valkey: Client) -> Iterator[Shop]:
    """A shop on an empty server."""
    made = Shop(valkey)
    yield made
    made.app.close()


# ---------------------------------------------------------------- as a process


@pytest.fixture
def celery(valkey: Client, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Celery's command line where the apps `shop` (with the brake) and `bare` (without) can be imported."""
    lines = f"from celery import Celery\nimport throttle\napp = Celery('shop', broker='{valkey.url}')\n"
    (tmp_path / "bare.py").write_text(lines)
    (tmp_path / "shop.py").write_text(f"{lines}throttle.install(app)\n")

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "celery", *arguments]
        return subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return call


def test_celery_knows_the_command_for_any_app_with_the_brake(shop: Shop, celery: Callable[..., Any]) -> None:
    first, second, third = shop.bury("shop.charge", "shop.ship", "mail.send")
    listed = celery("-A", "shop", "throttle", "dead", "list", "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [letter["id"] for letter in json.loads(listed.stdout)] == [first, second, third]
    answer = celery("-A", "shop", "throttle", "dead", "requeue", "1-1", first, "id of mail.send")
    assert (answer.returncode, answer.stdout) == (1, "requeued 2\n")
    assert answer.stderr == "headroom: 1-1: no dead letter has this ID, and none is of a task with it\n"
    assert shop.queue() == ["shop.charge", "mail.send"]
    assert shop.ids() == [second]


@pytest.mark.parametrize(
    ("before", "line"),
    [
        (["-A", "bare"], "app 'shop' has no brake; allowed is one on which throttle.install(app) was called"),
        ([], "no app was named; allowed is celery -A yours throttle ..., with an app that called throttle.install"),
    ],
)
def test_an_app_without_the_brake_is_one_line(celery: Callable[..., Any], before: Sequence[str], line: str) -> None:
    answer = celery(*before, "throttle", "dead", "list")
    assert (answer.returncode, answer.stdout, answer.stderr) == (2, "", f"headroom: {line}\n")


def test_a_reader_that_goes_away_is_no_failure_of_redis(shop: Shop, celery: Callable[..., Any], tmp_path: Path) -> None:
    with shop.client.pipeline() as pipe:
        for n in range(20 * PAGE):
            pipe.xadd(Keys().dead(), {**LETTER, "raw": str(n)})
        pipe.execute()
    listing = f"{sys.executable} -m celery -A shop throttle dead list | head -n 1"
    answer = subprocess.run(listing, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)  # noqa: S602 - a pipe is the point
    assert answer.stdout.startswith("ID ")
    assert "headroom" not in answer.stderr


# ---------------------------------------------------------------- what cannot be done


@pytest.mark.parametrize("arguments", [["dead", "list"], ["dead", "requeue", "--all"], ["status", "--json"]])
def test_a_redis_that_is_not_there_is_one_line(arguments: Sequence[str]) -> None:
    app = Celery("shop", broker=f"redis://127.0.0.1:{free_port()}/0", set_as_current=False)
    throttle.install(app)
    answer = run(app, *arguments)
    assert (answer.exit_code, answer.stdout) == (69, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("headroom: no Redis at redis://")
    assert "connecting to 127.0.0.1" in line


def test_a_redis_that_goes_away_meanwhile_is_one_line(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keys, "dead", Keys.alive)  # a key of another type: an error that comes after the connection
    answer = shop.run("dead", "list")
    assert answer.exit_code == 69
    assert answer.stderr.startswith("headroom: Redis failed: WRONGTYPE")


def test_an_address_that_is_none_is_one_line() -> None:
    app = Celery("shop", broker="amqp://localhost", set_as_current=False)
    throttle.install(app)
    answer = run(app, "status")
    assert answer.exit_code == 1
    assert answer.output.startswith(
        "headroom: broker address 'amqp://localhost': amqp is no scheme of Redis; allowed is"
    )


@pytest.mark.parametrize("command", ["requeue", "drop"])
@pytest.mark.parametrize("arguments", [[], ["--all", "1-1"], ["--task", "a", "1-1"], ["--all", "--reason", "a"]])
def test_which_letters_are_meant_must_be_said_in_one_way(shop: Shop, command: str, arguments: Sequence[str]) -> None:
    (letter,) = shop.bury("shop.charge")
    answer = shop.run("dead", command, *arguments)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr == (
        "headroom: which dead letters? allowed are IDs, or --task, --reason and --queue, or --all\n"
    )
    assert shop.ids() == [letter]


# ---------------------------------------------------------------- list and show


def test_the_list_is_a_plain_table(shop: Shop) -> None:
    ids = shop.bury("shop.charge", "mail.send")
    answer = shop.run("dead", "list")
    head, *rows = (line.split() for line in answer.stdout.splitlines())
    assert head == ["ID", "DIED", "DELIVERIES", "QUEUE", "TASK", "REASON"]
    assert [row[0] for row in rows] == ids
    charge, send = [row[2:] for row in rows]
    assert charge == ["1", "celery", "shop.charge", "crashed"]
    assert send == ["1", "celery", "mail.send", "rejected"]
    assert answer.stdout.splitlines()[1].index("crashed") == answer.stdout.index("REASON"), "columns are straight"


def test_nothing_to_list_is_said_and_is_no_failure(shop: Shop) -> None:
    answer = shop.run("dead", "list")
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "", "no dead letters\n")
    answer = shop.run("dead", "list", "--json")
    assert (answer.exit_code, answer.stdout) == (0, "[]\n")


def test_many_are_listed_page_by_page(shop: Shop) -> None:
    count = 2 * PAGE + 3
    with shop.client.pipeline() as pipe:
        for n in range(count):
            pipe.xadd(Keys().dead(), {**LETTER, "raw": str(n)})
        pipe.execute()
    answer = shop.run("dead", "list")
    lines = answer.stdout.splitlines()
    assert len(lines) == count + 1
    assert [line.split()[0] for line in lines[1:]] == shop.ids()
    assert [letter["id"] for letter in json.loads(shop.run("dead", "list", "--json").stdout)] == shop.ids()


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        (["--task", "shop.charge"], ["shop.charge"]),
        (["--task", "shop.*"], ["shop.charge", "shop.ship"]),
        (["--task", "shop"], []),
        (["--reason", "rej*"], ["mail.send"]),
        (["--reason", "crashed", "--task", "*.ship"], ["shop.ship"]),
        (["--queue", "celery"], ["shop.charge", "shop.ship", "mail.send"]),
        (["--queue", "other"], []),
    ],
)
def test_letters_are_chosen_by_what_they_say(shop: Shop, options: Sequence[str], tasks: Sequence[str]) -> None:
    shop.bury("shop.charge", "shop.ship", "mail.send")
    listed = json.loads(shop.run("dead", "list", "--json", *options).stdout)
    assert [letter["task"] for letter in listed] == tasks
    answer = shop.run("dead", "requeue", *options)
    assert (answer.exit_code, answer.stdout) == (0, f"requeued {len(tasks)}\n")
    assert shop.queue() == tasks


def test_a_letter_is_shown_with_all_that_is_known(shop: Shop) -> None:
    (letter,) = shop.bury("shop.charge")
    answer = shop.run("dead", "show", letter)
    said = {line.split()[0]: line.split(maxsplit=1)[1] for line in answer.stdout.splitlines()}
    assert said["task"] == "shop.charge id of shop.charge"
    assert said["arguments"] == "('shop.charge',)"
    assert (said["queue"], said["deliveries"], said["reason"]) == ("celery", "1", "crashed")
    assert said["died"].endswith("Z, held by a#1")
    (shown,) = json.loads(shop.run("dead", "show", "--json", "id of shop.charge").stdout)
    assert shown["id"] == letter
    assert shown["message"]["headers"]["task"] == "shop.charge"


def test_the_story_of_a_letter_is_told(shop: Shop) -> None:
    shop.app.send_task("shop.charge")
    failures: list[tuple[Any, str]] = [("head", "crashed"), ("dead", "rejected"), ("dead", "rejected")]
    for number, (where, why) in enumerate(failures, 1):
        shop.operations.take(A, number, (), ("celery",))
        shop.operations.back(A, number, where, deliveries=1, reason=why, text=f"Traceback:\n  line\n{why}: \x1b[1m")
        if number == 2:
            assert shop.run("dead", "requeue", "--all").exit_code == 0
    (letter,) = shop.letters
    told = shop.run("dead", "show", letter.id).stdout.partition("(--json prints it)\n")[2].splitlines()
    heads = [line.split("Z  ")[1] for line in told if not line.startswith("    ")]
    assert heads == ["crashed  a#1", "rejected  a#1", "requeued by hand", "rejected  a#1"]
    assert told[1:4] == ["      Traceback:", "        line", "      crashed: \\x1b[1m"]
    assert told[9].strip() == who()
    (shown,) = json.loads(shop.run("dead", "show", "--json", letter.id).stdout)
    assert [line["why"] for line in shown["history"]] == ["crashed", "rejected", "requeued by hand", "rejected"]
    assert shown["history"][0]["text"].startswith("Traceback:\n  line")
    assert shown["deliveries"] == 3


def test_of_several_ids_those_that_are_there_are_shown(shop: Shop) -> None:
    first, second = shop.bury("shop.charge", "mail.send")
    answer = shop.run("dead", "show", first, "1-1", second)
    assert answer.exit_code == 1
    assert [line for line in answer.stdout.splitlines() if line.startswith("dead letter")] == [
        f"dead letter {first}",
        f"dead letter {second}",
    ]
    assert answer.stderr == "headroom: 1-1: no dead letter has this ID, and none is of a task with it\n"


def test_a_message_cannot_command_the_terminal(shop: Shop) -> None:
    shop.client.lpush("celery", b'{"headers": {"task": "a\\u001b]0;b\\u0007\\nc"}}\x1b')
    shop.client.lpush("celery", b"\x1b[2J")
    for number in (1, 2):
        shop.operations.take(A, number, (), ("celery",))
        shop.operations.back(A, number, "dead", reason="undecodable: \x1b[31m\nred")
    for arguments in (["list"], ["show", *shop.ids()]):
        answer = shop.run("dead", *arguments)
        assert "undecodable: \\x1b[31m\\nred" in answer.stdout
        assert all(c.isprintable() or c == "\n" for c in answer.stdout)
    shown = json.loads(shop.run("dead", "show", "--json", *shop.ids()).stdout)
    assert shown[1]["message_base64"] == "G1sySg=="


# ---------------------------------------------------------------- requeue and drop


def test_all_are_requeued_to_the_head_or_the_tail(shop: Shop) -> None:
    shop.bury("shop.charge", "shop.ship")
    shop.app.send_task("mail.send")
    assert shop.run("dead", "requeue", "--all").stdout == "requeued 2\n"
    assert shop.queue() == ["shop.charge", "shop.ship", "mail.send"]
    shop.client.delete("celery")
    shop.bury("shop.charge", "shop.ship")
    shop.app.send_task("mail.send")
    assert shop.run("dead", "requeue", "--all", "--tail").stdout == "requeued 2\n"
    assert shop.queue() == ["mail.send", "shop.charge", "shop.ship"]
    answer = shop.run("dead", "requeue", "--all")
    assert (answer.exit_code, answer.stdout) == (0, "requeued 0\n")


def test_a_program_reads_what_became_of_each(shop: Shop) -> None:
    good, stays = shop.bury("shop.charge"), shop.bury("mail.send", queue="other")
    shop.client.set("other", "no list")
    answer = shop.run("dead", "requeue", "--json", *good, *stays, "nobody")
    assert answer.exit_code == 1
    outcome = json.loads(answer.stdout)
    assert outcome["requeued"] == good
    assert [failure["id"] for failure in outcome["failed"]] == [*stays, "nobody"]
    assert "WRONGTYPE" in outcome["failed"][0]["error"]
    assert len(answer.stderr.splitlines()) == 2
    assert shop.ids() == stays


def test_a_drop_asks_unless_the_letters_are_named(shop: Shop) -> None:
    first, second, third = shop.bury("shop.charge", "shop.ship", "mail.send")
    for typed in ("n\n", "\n", ""):
        answer = shop.run("dead", "drop", "--all", typed=typed)
        assert (answer.exit_code, answer.stdout) == (1, "")
        assert answer.stderr.startswith("drop 3 dead letters for good? [y/N]: ")
        assert answer.stderr.endswith("headroom: nothing was dropped; --yes drops without asking\n")
    assert shop.ids() == [first, second, third]
    assert shop.run("dead", "drop", first).stdout == "dropped 1\n"
    assert shop.run("dead", "drop", "--task", "shop.*", typed="y\n").stdout == "dropped 1\n"
    assert shop.ids() == [third]
    answer = shop.run("dead", "drop", "--all", "--yes", "--json")
    assert json.loads(answer.stdout) == {"dropped": [third], "failed": []}
    assert shop.run("dead", "drop", "--all").stdout == "dropped 0\n", "nothing to ask about"
    assert shop.queue() == []


# ---------------------------------------------------------------- status


def test_status_tells_where_pods_and_messages_are(shop: Shop) -> None:
    shop.bury("mail.send")
    for queue in ("celery", "critical", "other"):
        shop.app.send_task("shop.charge", queue=queue)
    shop.app.send_task("shop.charge", priority=9)
    shop.operations.join("b#1")
    shop.operations.take("b#1", 1, (), ("nobody's", "other"))
    shop.operations.join("c#1")
    shop.operations.take("c#1", 1, (), ("nobody's",))
    shop.operations.join("d#1")
    shop.operations.drain("d#1")
    found = json.loads(shop.run("status", "--json").stdout)
    assert found == {
        "fleet": "default",
        "living": 3,
        "draining": 1,
        "silent": 0,
        "busy": 1,
        "capacity": 2,
        "reserve": 1,
        "waiting": 1,
        "parked": 0,
        "dead": 1,
        "queued": {"celery": 2, "critical": 1, "nobody's": 0, "other": 0},
    }
    lines = {line.rsplit(maxsplit=1)[0]: line.split()[-1] for line in shop.run("status").stdout.splitlines()}
    assert lines["living"] == "3"
    assert lines["queued in celery"] == "2"


def test_status_sees_behind_a_prefix(valkey: Client) -> None:
    options = {"global_keyprefix": "shop:", "priority_steps": [0, 5], "sep": ":"}
    app = Celery("shop", broker=valkey.url, set_as_current=False, broker_transport_options=options)
    throttle.install(app)
    operations = Operations(valkey, Keys(prefix="shop:"), Rule(0.8, 30_000, 5))
    operations.join(A)
    operations.take(A, 1, (), ("shop:other",))
    app.send_task("shop.charge")
    app.send_task("shop.charge", priority=5)
    found = json.loads(run(app, "status", "--json").stdout)
    assert found["queued"] == {"celery": 2, "critical": 0, "other": 0}
    operations.take(A, 1, (), ("shop:celery",))
    operations.back(A, 1, "dead", reason="rejected")
    (letter,) = json.loads(run(app, "dead", "list", "--json").stdout)
    assert letter["queue"] == "celery"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("stat",), "celery throttle: there is no command 'stat': allowed are dead, drain, schedule, status"),
        (("dead", "lst"), "celery throttle dead: there is no command 'lst': allowed are drop, list, requeue, show"),
        (("dead", "list", "--queue"), "celery throttle dead list: option '--queue' requires an argument"),
        (("dead", "drop", "--no"), "celery throttle dead drop: no such option '--no'"),
        (("dead", "show"), "celery throttle dead show: missing argument 'ID...'"),
        (("status", "now"), "celery throttle status: got unexpected extra argument (now)"),
        (("drain", "--timeout", "abc"), "celery throttle drain: argument --timeout: 'abc' is not allowed: a number of"),
    ],
)
def test_what_was_asked_wrongly_is_one_line(shop: Shop, arguments: tuple[str, ...], said: str) -> None:
    answer = shop.run(*arguments)
    assert (answer.exit_code, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith(said)
    assert line.endswith(" --help)")
