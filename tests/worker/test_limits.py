# pyright: basic
"""Time limits: who goes before whom, and what each pool does about them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from celery import Celery
from celery.worker.request import Request

import throttle
from tests.worker.conftest import APP, KEYS, on_every_pool
from throttle.errors import ConfigurationError
from throttle.policy import Limit, TimeLimits, parse_limits
from throttle.worker import routes
from throttle.worker.limits import EXIT_OVERRUN, limits_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.local.guard import Process
    from tests.support.servers import Client
    from tests.worker.conftest import Fleet

LIMITS = TimeLimits(Limit(600, 660), {"quick": Limit(3, 6), "endless": Limit(0, 0)})


# ---------------------------------------------------------------- who goes before whom


def work() -> None:
    """Do nothing."""


@pytest.fixture
def app(valkey: Client) -> Iterator[Celery]:
    """An app with limits by default and for two queues, and tasks with limits of their own and without."""
    made = Celery("limits", broker=valkey.url, set_as_current=False)
    throttle.install(made, time_limits=LIMITS)
    made.task(shared=False, name="plain")(work)
    made.task(shared=False, name="own", time_limit=50, soft_time_limit=40)(work)
    made.task(shared=False, name="half", soft_time_limit=2)(work)
    yield made
    made.close()


def request_of(app: Celery, name: str, queue: str, **options: Any) -> Request:
    """What a worker makes of a message that was really sent, and read from its queue."""
    app.send_task(name, queue=queue, **options)
    with app.connection_for_read() as connection:
        message = connection.default_channel.basic_get(queue, no_ack=True)
    return Request(message, app=app, headers=message.headers, body=message.body)


@pytest.mark.parametrize(
    ("name", "queue", "options", "hard_soft"),
    [
        ("plain", "celery", {}, (660, 600)),
        ("plain", "quick", {}, (6, 3)),
        ("plain", "endless", {}, (None, None)),
        ("own", "quick", {}, (50, 40)),
        ("half", "quick", {}, (6, 2)),
        ("plain", "quick", {"time_limit": 9}, (9, 3)),
        ("own", "quick", {"soft_time_limit": 1}, (50, 1)),
        ("own", "quick", {"time_limit": 9, "soft_time_limit": 8}, (9, 8)),
        ("own", "endless", {}, (50, 40)),
    ],
)
def test_message_then_task_then_queue_then_default(
    app: Celery, name: str, queue: str, options: dict[str, Any], hard_soft: tuple[Any, Any]
) -> None:
    request = request_of(app, name, queue, **options)
    assert routes.queue_of_request(request) == queue
    assert limits_of(request, LIMITS, queue) == hard_soft


def test_what_celery_has_for_all_comes_last(app: Celery) -> None:
    """Celery writes its setting into each task; what is the same as it is nobody's own."""
    app.conf.task_time_limit = 99
    app.task(shared=False, name="common")(work)
    app.finalize()
    assert app.tasks["common"].time_limit == 99
    assert limits_of(request_of(app, "common", "quick"), LIMITS, "quick") == (6, 3)


@pytest.mark.parametrize(
    "text", ["quick", "quick=3", "quick=a/b", "=1/2", "quick=1/2,quick=1/2", "quick=1/2/3", "q=nan/2"]
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - it has no words, the setting's own line has
        parse_limits(text)


@pytest.mark.parametrize("limit", [Limit(5, 5), Limit(6, 5), Limit(-1, 5), Limit(0, 1e9)])
def test_what_cannot_be_meant_is_refused(limit: Limit) -> None:
    with pytest.raises(ConfigurationError, match="time limit of quick"):
        TimeLimits(queues={"quick": limit})


# ---------------------------------------------------------------- on the pools


def install(**limits: Any) -> dict[str, str]:
    """Pods with these limits."""
    return {"WORKLOAD_INSTALL": json.dumps({"time_limits": limits})}


def from_a_stranger(fleet: Fleet, name: str, *args: Any, queue: str = "celery") -> str:
    """Send as a producer that knows nothing of the limits, nor of Headroom."""
    with Celery("stranger", broker=fleet.client.url, set_as_current=False) as stranger:
        return stranger.send_task(f"{APP}.{name}", args, ignore_result=True, queue=queue).id


@on_every_pool
def test_a_queues_limit_gives_the_slot_back_or_is_told(fleet: Fleet, pool: str) -> None:
    """A message of any producer has the limits of its queue. Where the pool cannot end it, the log says which it is."""
    fleet.start("one", pool=pool, arguments=["--queues", "celery,quick"], **install(queues={"quick": [0, 0.7]}))
    (pod,) = fleet.workers.pods
    task = from_a_stranger(fleet, "work", 4.0, queue="quick")
    fleet.wait(lambda: fleet.started(task), "its start")
    if pool in ("prefork", "gevent"):
        fleet.wait(lambda: fleet.held() == 0, "its slot")
        assert fleet.workers.done() == []
        assert "Hard time limit (0.7s) exceeded" in pod.read_log()
        assert "cannot end a task at its time limit" not in pod.read_log()
    else:
        said = f"task {APP}.work[{task}] of queue quick has run past its hard time limit of 0.7 s"
        fleet.wait(lambda: said in pod.read_log(), "the overrun told")
        assert fleet.held() == 1
        assert pod.read_log().count("cannot end a task at its time limit: the log names one") == 1
        fleet.wait_done(task)
        assert pod.read_log().count("has run past") == 1
    fleet.wait_done(fleet.send("work"))


def test_what_is_no_limit_is_a_dead_letter(fleet: Fleet) -> None:
    """A message may say anything; its worker goes on."""
    fleet.start("one", pool="threads", **install(default=[0, 60]))
    message = fleet.producer.amqp.as_task_v2("id", f"{APP}.work", ())
    for odd in (5, [1], "ab", [["a"], {"b": 1}]):
        headers = {**message.headers, "timelimit": odd}
        with fleet.producer.producer_pool.acquire() as producer:
            producer.publish(message.body, routing_key="celery", headers=headers, **message.properties)
    fleet.wait(lambda: len(fleet.dead()) == 4, "dead letters")
    assert {reason.partition(":")[0] for reason in fleet.dead()} == {"unusable"}
    fleet.wait_done(fleet.send("work"))


def overrun(fleet: Fleet, pool: str) -> None:
    """A stuck task ends its pod in order; what ran beside it ends first, and its message comes again, counted."""
    options = install(default=[0, 1.0], overrun="exit")
    first: Process
    (first,) = fleet.start("one", pool=pool, concurrency=1 if pool == "solo" else 2, **options)
    stuck = fleet.send("work", 60.0)
    fleet.wait(lambda: fleet.started(stuck), "its start")
    beside = fleet.send("work", 2.0, time_limit=20) if pool == "threads" else None
    assert first.wait(20.0) == EXIT_OVERRUN
    if beside is not None:
        assert beside in fleet.workers.done()
    assert "the pod ends" in first.read_log()
    fleet.wait(lambda: fleet.counts().alive == 0, "no member left")
    assert (fleet.held(), fleet.waiting()) == (0, 1)
    (key,) = fleet.client.keys(f"{KEYS.namespace()}deliveries:*")
    assert fleet.client.hget(key, "n") == b"1"
    assert b"time limit" in cast("bytes", fleet.client.hget(key, "history"))


def test_an_overrun_ends_a_pod_of_threads(fleet: Fleet) -> None:
    overrun(fleet, "threads")


def test_an_overrun_ends_a_solo_pod(fleet: Fleet) -> None:
    overrun(fleet, "solo")


def test_at_the_other_gate_kombu_gives_the_message_back(fleet: Fleet) -> None:
    """Uncounted, but at once: else it came back by the visibility timeout, an hour later."""
    options = {
        "WORKLOAD_INSTALL": json.dumps({"gate": "requeue", "time_limits": {"default": [0, 1], "overrun": "exit"}})
    }
    (pod,) = fleet.start("one", pool="threads", **options)
    task = fleet.send("work", 60.0)
    fleet.wait(lambda: fleet.started(task), "its start")
    assert pod.wait(20.0) == EXIT_OVERRUN
    assert fleet.waiting() == 1
    assert (fleet.client.hlen("unacked"), fleet.counts().alive, fleet.held()) == (0, 0, 0)
