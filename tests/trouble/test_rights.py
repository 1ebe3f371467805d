"""A user of Redis with the least rights: a fleet, its producers and its monitors can live on them, and on no fewer."""

# pyright: basic

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from celery import Celery

from app.local.processes import ROOT, StartError, wait_ready
from app.local.servers import Server
from tests.support.servers import kinds
from tests.trouble.conftest import KEEPS_ITS_DATA
from tests.trouble.fleet import APP, Fleet
from throttle import rights, schedule
from throttle.keys import Keys
from throttle.scripts import Operations, Rule, read_lua

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.guard import Guard

PAGE = ROOT / "docs" / "how-to" / "secure-redis.md"
PASSWORD = "secret"  # noqa: S105 - of a server that lives for a test
USERS = ("worker", "producer", "foreign", "monitor")
SUBSCRIBES = ("/0.celery.pidbox", "/0.celeryev/worker.*")
PUBLISHES = ("/0.celery.pidbox", "/0.celeryev/task.multi")


def rules_of(user: str) -> list[str]:
    """What the how-to page says that a user needs, for the queues `orders` and `critical`."""
    found = re.search(rf"^ACL SETUSER {user} (.+?)\n```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].replace("\\\n", " ").replace("orders", "celery").split()


def make_user(client: redis.Redis, user: str, rules: list[str]) -> None:
    """Make the user anew, with these rules."""
    client.execute_command("ACL", "DELUSER", user)
    client.execute_command("ACL", "SETUSER", user, "on", f">{PASSWORD}", *[r for r in rules if r[0] in "+~&%-"])


@pytest.fixture(scope="module", params=kinds())
def server(request: pytest.FixtureRequest, guard: Guard) -> Iterator[Server]:
    made = Server(guard, request.param, options=KEEPS_ITS_DATA).start()
    yield made
    made.kill()


def url_of(server: Server, user: str) -> str:
    return server.url.replace("://", f"://{user}:{PASSWORD}@")


def test_a_fleet_lives_on_the_rights_of_the_page(server: Server, guard: Guard) -> None:
    """All pools, every way in which a task can end, a pod that dies and one that leaves, control, events, results.

    The server's own log of what it refused stays empty.
    """
    with server.client() as eye:
        eye.flushall()
        for user in USERS:
            make_user(eye, user, [*rules_of(user), "~seen:*", "~asked:*", "+incrby"])  # the tasks' own
        eye.execute_command("ACL", "LOG", "RESET")
        config = {"task_default_queue": "celery"}
        fleet = Fleet(guard, server, guard.folder("trouble"), url=url_of(server, "worker"), config=config)
        producer = fleet.make_producer(url_of(server, "producer"))
        monitor = fleet.make_producer(url_of(server, "monitor"))
        foreign = Celery("foreign", broker=url_of(server, "foreign"), set_as_current=False)
        foreign.conf.task_default_queue = "celery"
        try:
            fleet.start()
            fleet.producer.close()
            fleet.producer = producer
            fleet.is_well(20.0)
            tasks = [
                fleet.send(0.1),
                fleet.send(0.1, task="early"),
                foreign.send_task(f"{APP}.work", ignore_result=True).id,
            ]
            for name, args in (("retried", ()), ("rejecting", (True,)), ("asking", (0.1,))):
                tasks.append(producer.send_task(f"{APP}.{name}", args, ignore_result=True).id)
            tasks.append(producer.send_task(f"{APP}.work", countdown=2, ignore_result=True).id)
            producer.send_task(f"{APP}.rejecting", (False,), ignore_result=True)
            producer.send_task("nobody.knows", ignore_result=True)
            fleet.wait_done(tasks)
            pongs = monitor.control.inspect(timeout=2.0).ping()
            assert set(pongs) == {f"{pod.name}@local" for pod in fleet.pods}
            dying, leaving = fleet.pods[0], fleet.pods[1]
            task = fleet.send(2.0)
            dying.process.kill()
            leaving.process.terminate()
            assert leaving.process.wait(15.0) == 0
            fleet.wait_done([task])
            fleet.wait(lambda: fleet.counts()[:2] == (2, 0) and fleet.counts().silent == 0, "two pods")
            told = [refused(entry) for entry in eye.acl_log() if entry["object"] != "client|setinfo"]
            assert told == []
            assert "ermission" not in fleet.logs()
            fleet.balance()
        finally:
            for each in (producer, monitor, foreign):
                each.close()
            fleet.end()


def refused(entry: Any) -> str:
    """An entry of the log of refusals, in short."""
    return f"{entry['username']}: {entry['reason']} {entry['object']}"


KOMBUS = ("_kombu.binding.celery", "unacked_mutex", "x.celery.pidbox")


@pytest.mark.parametrize("user", ["worker"])
def test_each_right_of_the_page_is_missed_by_its_name(server: Server, user: str) -> None:
    optional = {f"+{name.lower().replace(' ', '|')}" for name in rights.DOORKEEPER}
    rules = [rule for rule in rules_of(user) if rule[0] in "+~&" and rule not in optional]
    with server.client() as eye:
        for rule in rules:
            make_user(eye, user, [other for other in rules_of(user) if other != rule])
            with redis.Redis(port=server.port, username=user, password=PASSWORD) as client:
                operations = Operations(client, Keys(), Rule(0.8, 3000, 5))
                keys = ["celery", "critical", *KOMBUS]
                lacks = rights.missing(operations, keys=keys, subscribes=SUBSCRIBES, publishes=PUBLISHES)
            assert lacks, rule
            assert all(fits(found, rule) for found in lacks), (rule, lacks)


def fits(found: str, rule: str) -> bool:
    """Whether what was found to be missing is granted by a rule of the page."""
    return found[0] == rule[0] and fnmatchcase(found[1:].rstrip("*"), rule[1:].replace("[", "[[]"))


def test_a_worker_that_lacks_a_right_refuses_to_start_with_one_line_that_names_it(server: Server, guard: Guard) -> None:
    with server.client() as eye:
        make_user(eye, "worker", [rule for rule in rules_of("worker") if rule not in ("+zcount", "~celery*")])
    fleet = Fleet(guard, server, guard.folder("trouble"), url=url_of(server, "worker"))
    try:
        fleet.start(["solo"], ready=False)
        (pod,) = fleet.pods
        with pytest.raises(StartError):
            wait_ready([pod.process])
        lines = [line for line in pod.process.read_log().splitlines() if line.strip()]
        assert lines[-1].startswith("headroom: Redis at redis://worker:**@")
        assert "missing: +zcount ~celery" in lines[-1]
        assert "Traceback" not in pod.process.read_log()
    finally:
        fleet.end()


def test_the_look_tries_each_command_of_each_script() -> None:
    lua = Path(rights.__file__).parent / "lua"
    of_beat = {"_schedule", *schedule.OPERATIONS}  # no worker calls them
    text = "\n".join(read_lua(path.stem) for path in lua.glob("*.lua") if path.stem not in of_beat)
    used = set(re.findall(r"call\('([A-Z]+)'", text)) | set(re.findall(r"'((?:L|R)PUSH)'", text))
    assert used <= {words[0] for words in rights.SCRIPTED}
    assert {f"+{name}" for name in rights.commands()} == {rule for rule in rules_of("worker") if rule[0] == "+"}


def test_a_producer_may_run_what_put_is_made_of() -> None:
    text = read_lua("put") + read_lua("_rule") + read_lua("_bells")
    of_others = {"DEL", "XADD", "HINCRBY"}  # even_when_full, log and count, which PUT does not call
    used = {f"+{name.lower()}" for name in set(re.findall(r"call\('([A-Z]+)'", text)) - of_others}
    assert used <= set(rules_of("producer"))
