"""The schedule of an app: what it may declare, when it is due, what becomes of missed runs, and how people see it."""

# pyright: basic

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from celery.beat import BeatLazyFunc
from celery.schedules import crontab, schedule
from click.testing import CliRunner
from kombu.entity import Exchange, Queue

import throttle
from app.local.servers import free_port
from throttle.commands import command
from throttle.errors import ConfigurationError
from throttle.keys import Keys
from throttle.schedule import Record
from throttle.worker.dues import Dues, Unusable, microseconds, moment
from throttle.worker.entries import LATE_S, plan
from throttle.worker.scheduler import Scheduler, standing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Client

S = 1_000_000
NOON = microseconds(datetime(2026, 3, 27, 12, tzinfo=UTC))


def made_app(url: str = "redis://localhost", **entries: Any) -> Celery:
    """An app with the brake and these entries of the schedule."""
    app = Celery("shop", broker=url, set_as_current=False)
    app.conf.update(timezone="Europe/Berlin", result_expires=None, beat_schedule=entries)
    throttle.install(app)
    return app


def entry(made: Any = 10.0, **options: Any) -> Any:
    """The entry `e` of an app, as its scheduler reads it."""
    return Scheduler(made_app(e={"task": "t", "schedule": made, "options": options})).entries["e"]


# ---------------------------------------------------------------- what may be declared


@pytest.mark.parametrize(
    ("declared", "line"),
    [
        ({"options": {"catchup": "al"}}, "catchup='al': allowed is 'skip', 'last', 'all'"),
        ({"options": {"catchup_limit": 0}}, "catchup_limit=0: allowed is a whole number from 1 to 1000"),
        ({"options": {"catchup_limit": True}}, "catchup_limit=True: allowed is a whole number from 1 to 1000"),
        ({"schedule": 0}, "schedule=datetime.timedelta(0): allowed are 0.01 seconds or more"),
        ({"schedule": -1}, "schedule=datetime.timedelta(days=-1, seconds=86399): allowed are 0.01 seconds or more"),
        ({"schedule": None}, "schedule=None: allowed is a number of seconds, a timedelta, crontab(...) or solar(...)"),
        ({"schedule": "daily"}, "'str' object has no attribute 'app'"),
        ({"task": ""}, "task='': allowed is the name of a task"),
        ({"tsak": "t"}, "unexpected keyword argument 'tsak'"),
    ],
)
def test_what_cannot_be_run_is_refused_with_one_line(declared: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Scheduler(made_app(bad={"task": "t", "schedule": 1, **declared}))
    assert str(caught.value).startswith("beat_schedule['bad']: ")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_schedule_that_only_its_own_code_knows_is_refused() -> None:
    class Moody(schedule):
        def is_due(self, _last_run_at: datetime) -> tuple[bool, float]:
            return False, 1.0

    with pytest.raises(Unusable, match="allowed is a number of seconds"):
        Dues(Moody(1))


def test_an_app_without_the_brake_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has no brake"):
        Scheduler(Celery("bare", broker="redis://localhost", set_as_current=False))


def test_an_app_keeps_the_scheduler_that_it_chose() -> None:
    app = Celery("shop", broker="redis://localhost", set_as_current=False)
    app.conf.beat_scheduler = "celery.beat:PersistentScheduler"
    throttle.install(app)
    assert app.conf.beat_scheduler == "celery.beat:PersistentScheduler"
    assert made_app().conf.beat_scheduler == "throttle.worker.scheduler:Scheduler"


def test_periodic_tasks_say_it_as_options() -> None:
    app = made_app()
    app.add_periodic_task(30.0, app.signature("t"), name="p", catchup="all", catchup_limit=3, queue="q")
    found = Scheduler(app).entries["p"]
    assert (found.catchup, found.limit, found.options) == ("all", 3, {"queue": "q"})


# ---------------------------------------------------------------- due times


def dues(made: Any) -> Dues:
    """The due times of a schedule, in Berlin."""
    return entry(made).dues


def following(made: Any, start: datetime, count: int) -> list[str]:
    """Local times of the due times after a start."""
    app, us, found = made_app(), microseconds(start), []
    of = dues(made)
    for _ in range(count):
        us = of.after(us)
        found.append(moment(us).astimezone(app.timezone).isoformat()[5:])
    return found


def test_a_daily_time_exists_once_on_the_days_on_which_the_clock_changes() -> None:
    at = crontab(minute=30, hour=2)
    assert following(at, datetime(2026, 3, 27, 12, tzinfo=UTC), 3) == [
        "03-28T02:30:00+01:00",
        "03-29T03:30:00+02:00",
        "03-30T02:30:00+02:00",
    ]
    assert following(at, datetime(2026, 10, 24, 12, tzinfo=UTC), 2) == ["10-25T02:30:00+02:00", "10-26T02:30:00+01:00"]


def test_a_relative_interval_stays_at_midnight() -> None:
    days = schedule(timedelta(days=1), relative=True)
    assert following(days, datetime(2026, 10, 24, 12, tzinfo=UTC), 3) == [
        "10-25T00:00:00+02:00",
        "10-26T00:00:00+01:00",
        "10-27T00:00:00+01:00",
    ]


def test_an_interval_has_no_drift_and_no_rounding() -> None:
    of = dues(1 / 3)
    us = NOON
    for _ in range(3000):
        us = of.after(us)
    assert us == NOON + 3000 * 333_333


@pytest.mark.parametrize(
    ("made", "days"),
    [(7.0, 0.1), (crontab(), 0.5), (crontab(minute="*/7"), 2), (crontab(0, 3), 150), (crontab(0, 0, "*", 31), 1500)],
)
def test_the_newest_due_times_are_those_that_counting_finds(made: Any, days: float) -> None:
    of = dues(made)
    first = of.after(NOON)
    until = NOON + round(days * 86400) * S
    counted = [first]
    while (after := of.after(counted[-1])) <= until:
        counted.append(after)
    assert len(counted) > 20
    for count in (1, 2, 5, 100):
        assert of.newest(first, until, count) == counted[-count:]
    assert of.newest(first, first - 1, 5) == []
    assert of.newest(first, first, 5) == [first]


# ---------------------------------------------------------------- missed runs


HOUR = 3600 * S


@pytest.mark.parametrize(
    ("options", "late_us", "run_hour", "next_hour"),
    [
        ({}, 0, 0, 1),
        ({}, LATE_S * S, 0, 1),
        ({}, LATE_S * S + 1, None, 1),
        ({}, 3 * HOUR + LATE_S * S, 3, 4),
        ({}, 3 * HOUR + LATE_S * S + 1, None, 4),
        ({"catchup": "last"}, 3 * HOUR + 1800 * S, 3, 4),
        ({"catchup": "all"}, 3 * HOUR + 1800 * S, 0, 1),
        ({"catchup": "all", "catchup_limit": 2}, 3 * HOUR + 1800 * S, 2, 3),
        ({"catchup": "all", "catchup_limit": 1}, 3 * HOUR + 1800 * S, 3, 4),
    ],
)
def test_what_is_done_about_due_times_that_passed(
    options: dict[str, Any], late_us: int, run_hour: int | None, next_hour: int
) -> None:
    todo = plan(entry(3600.0, **options), NOON, NOON + late_us)
    assert todo.run_us == (None if run_hour is None else NOON + run_hour * HOUR)
    assert todo.next_us == NOON + next_hour * HOUR
    assert todo.missed == (run_hour != 0)


def test_a_schedule_that_was_changed_begins_with_the_change() -> None:
    nightly, hourly = entry(crontab(0, 3)), entry(crontab(0))
    known = nightly.record(None, NOON)
    assert known.last_us == 0
    assert nightly.record(known, NOON + 90 * 86400 * S) == known, "the same schedule: its past counts"
    changed = hourly.record(known._replace(last_us=NOON - 9 * HOUR), NOON + HOUR // 2)
    assert (changed.due_us, changed.digest) == (NOON + HOUR, hourly.dues.digest)
    longer = entry(7200.0).record(Record(NOON, NOON - HOUR, 0, 5, "every 3600 s"), NOON)
    assert (longer.due_us, longer.runs) == (NOON + HOUR, 5), "an interval goes on from its last run"


# ---------------------------------------------------------------- on a server


class Beat:
    """One scheduler whose turns the test takes."""

    def __init__(self, client: Client, app: Celery) -> None:
        """Begins to lead."""
        self.client = client
        self.scheduler = Scheduler(app)
        self.scheduler.tick()

    def make_due(self, name: str, seconds_ago: float) -> None:
        """Let an entry be due for so long, and begin a term with it."""
        record = self.scheduler._records[name]
        now_us = self.scheduler._clock.now_us()
        late = record._replace(due_us=now_us - round(seconds_ago * S))
        self.client.hset(Keys().schedule_entries(), name, str(late))
        self.client.delete(Keys().schedule_lease())
        self.scheduler._ask_at_s = 0.0
        self.scheduler.tick()

    def messages(self, queue: str = "celery") -> list[dict[str, Any]]:
        """What lies in a queue, the first one first."""
        return [json.loads(raw) for raw in reversed(self.client.lrange(queue, 0, -1))]

    def record(self, name: str) -> Record:
        """An entry's record in Redis."""
        raw: Any = self.client.hget(Keys().schedule_entries(), name)
        found = Record.read(raw.decode())
        assert found is not None
        return found


@pytest.fixture
def beats(valkey: Client) -> Iterator[Any]:
    """Makes beats of apps with given entries, and ends them."""
    made: list[Beat] = []

    def make(app: Celery | None = None, **entries: Any) -> Beat:
        beat = Beat(valkey, app or made_app(valkey.url, **entries))
        made.append(beat)
        return beat

    yield make
    for beat in made:
        beat.scheduler.close()


def test_each_missed_run_is_made_up_with_the_time_that_it_is_for(beats: Any) -> None:
    beat = beats(e={"task": "t", "schedule": 3600, "options": {"catchup": "all", "catchup_limit": 3}})
    beat.make_due("e", 5 * 3600 + 10)
    headers = [message["headers"] for message in beat.messages()]
    times = [microseconds(datetime.fromisoformat(header["beat_due"])) for header in headers]
    assert len({header["id"] for header in headers}) == 3
    assert times == [beat.record("e").due_us - n * HOUR for n in (3, 2, 1)]
    assert beat.record("e").runs == 3


def test_who_has_led_before_does_not_bring_back_its_old_records(beats: Any, valkey: Client) -> None:
    former, leader = (beats(e={"task": "t", "schedule": 3600}) for _ in range(2))
    valkey.delete(Keys().schedule_lease())
    leader.scheduler._ask_at_s = former.scheduler._ask_at_s = 0.0
    leader.scheduler.tick()
    leader.make_due("e", 5)
    former.scheduler.tick()
    assert (former.scheduler.standing, leader.record("e").runs) == ("standby", 1)
    valkey.flushall()
    former.scheduler._ask_at_s = leader.scheduler._ask_at_s = 0.0
    former.scheduler.tick()
    leader.scheduler.tick()
    assert leader.scheduler.standing == "leader"
    assert leader.record("e").runs == 1
    assert leader.messages() == []


def test_what_is_left_out_is_told(beats: Any, caplog: pytest.LogCaptureFixture) -> None:
    beat = beats(e={"task": "t", "schedule": 3600})
    beat.make_due("e", 1800)
    assert beat.messages() == []
    assert "e was missed since" in caplog.text
    assert beat.record("e").runs == 0


def test_an_entry_that_cannot_be_published_holds_up_nobody(
    beats: Any, valkey: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise FileNotFoundError("no list of today")

    valkey.set("no_list", 1)
    beat = beats(
        bad={"task": "t", "schedule": 3600, "args": ({1, 2}.__iter__(),)},
        lazy={"task": "t", "schedule": 3600, "args": (BeatLazyFunc(fail),)},
        queue={"task": "t", "schedule": 3600, "options": {"queue": "no_list"}},
        nowhere={"task": "t", "schedule": 3600, "options": {"exchange": "none", "routing_key": "none"}},
        good={"task": "t", "schedule": 3600},
    )
    for name in ("bad", "lazy", "queue", "nowhere", "good"):
        beat.make_due(name, 5)
    assert [message["headers"]["beat_entry"] for message in beat.messages()] == ["good"]
    for name in ("bad", "lazy", "queue", "nowhere"):
        assert f"{name} cannot be published" in caplog.text
        assert beat.record(name).runs == 0
        assert beat.record(name).due_us > beat.record("good").ran_us


def test_routes_priorities_and_broadcasts_are_as_celery_makes_them(beats: Any, valkey: Client) -> None:
    app = made_app(
        valkey.url,
        e={"task": "t", "schedule": 3600, "options": {"queue": "far", "priority": 3}},
        topic={"task": "t", "schedule": 3600, "options": {"exchange": "events", "routing_key": "a.b"}},
        all={"task": "t", "schedule": 3600, "options": {"queue": "all"}},
    )
    events, fanout = Exchange("events", type="topic"), Exchange("all", type="fanout")
    app.conf.task_queues = [Queue("far"), Queue("ab", events, "a.*"), Queue("bb", events, "*.b"), Queue("all", fanout)]
    app.conf.broker_transport_options = {"global_keyprefix": "pre."}
    with app.connection_for_write() as connection:
        for queue in app.conf.task_queues:
            queue(connection.default_channel).declare()
    beat = Beat(valkey, app)
    keys = Keys(prefix="pre.")
    beat.scheduler._records = {name: record._replace(due_us=1) for name, record in beat.scheduler._records.items()}
    with valkey.pubsub(ignore_subscribe_messages=True) as listener:
        listener.psubscribe("*")
        listener.get_message(timeout=5)
        valkey.delete(keys.schedule_entries(), keys.schedule_lease())
        entries = {name: entry.__dict__.update(catchup="last") for name, entry in beat.scheduler.entries.items()}
        assert set(entries) == {"e", "topic", "all"}
        beat.scheduler._ask_at_s = 0.0
        beat.scheduler.tick()
        heard: Any = listener.get_message(timeout=5)
    assert heard["channel"] == b"pre./0.all/celery"
    assert [valkey.llen(f"pre.{key}") for key in ("far\x06\x163", "ab", "bb")] == [1, 1, 1]
    beat.scheduler.close()


def test_a_beat_that_never_reached_redis_is_cut_off_and_goes_on() -> None:
    beat = Scheduler(made_app(f"redis://127.0.0.1:{free_port()}/0", e={"task": "t", "schedule": 1}))
    assert 0 < beat.tick() <= 1
    assert (beat.standing, standing()) == ("cut off", "cut off")
    beat.close()


def test_leader_and_standby_know_how_they_stand(beats: Any, valkey: Client) -> None:
    first = beats(e={"task": "t", "schedule": 3600})
    assert (first.scheduler.standing, standing()) == ("leader", "leader")
    second = beats(e={"task": "t", "schedule": 3600})
    assert (second.scheduler.standing, standing()) == ("standby", "standby")
    first.scheduler.close()
    second.scheduler._ask_at_s = 0.0
    second.scheduler.tick()
    assert second.scheduler.standing == "leader"


def test_people_see_who_leads_and_what_is_next(beats: Any, valkey: Client) -> None:
    beat = beats(e={"task": "t", "schedule": 3600}, nightly={"task": "t", "schedule": crontab(0, 3)})
    beats(e={"task": "t", "schedule": 3600})
    beat.make_due("e", 5)
    app = made_app(valkey.url)

    def shown(*arguments: str) -> str:
        context: Any = type("Context", (), {"app": app})
        answer = CliRunner().invoke(command, ["schedule", *arguments], obj=context)
        assert (answer.exit_code, answer.stderr) == (0, "")
        return answer.stdout

    found = json.loads(shown("--json"))
    assert found["leader"].endswith(f"#{beat.scheduler._boot}")
    assert len(found["standbys"]) == 1
    assert found["entries"]["e"]["runs"] == 1
    assert found["entries"]["nightly"]["last_due"] is None
    assert found["entries"]["e"]["next_due"] > found["entries"]["e"]["ran"]
    lines = shown().splitlines()
    assert lines[0].startswith("leads ")
    assert lines[1].startswith("stands by ")
    assert [line.split()[0] for line in lines[2:]] == ["entry", "e", "nightly"]
