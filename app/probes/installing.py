"""Ties the probes to the application: a worker's and beat's signals, and the bootstep that tells what its loop does.

The server starts with the process, before Redis is reached, so that `/startup` can say what it waits for. A port that
is taken ends the start: a pod whose probes nobody can reach would be restarted for ever, without a word.
"""
# pyright: basic

from __future__ import annotations

import logging
import time
from threading import Thread
from typing import TYPE_CHECKING, Any

import redis
from celery import bootsteps
from celery.signals import beat_init, celeryd_init
from celery.worker import state as worker_state
from kombu.exceptions import KombuError

from app.probes.backlog import Backlog, Lanes
from app.probes.server import listen, serve
from app.probes.verdicts import Limits
from app.probes.watching import TURN_S, BeatWatch, WorkerWatch
from throttle import events
from throttle.errors import ConfigurationError, HeadroomError
from throttle.worker.connecting import connect

if TYPE_CHECKING:
    from app.probes.answers import Probes
    from app.settings import Settings
    from throttle.scripts import Operations

logger = logging.getLogger(__name__)

PING_EVERY_S = 2.0


def install(app: Any, settings: Settings) -> None:
    """Have the workers and the beat of an app answer probes, unless `PROBE_PORT` is 0. Opens nothing yet."""
    if not settings.probe_port:
        return
    limits = Limits(settings.ready_stall_s, settings.health_stall_s)

    def on_worker(instance: Any, **_: Any) -> None:
        if instance.app is app:
            app.headroom_probes = start(
                WorkerWatch(lambda: app.throttle.driver, lambda: getattr(app, "headroom_shards", None)),
                limits,
                settings.probe_port,
            )

    def on_beat(sender: Any, **_: Any) -> None:
        if sender.app is app:
            watch = BeatWatch()
            look_after(sender, watch)
            app.headroom_probes = start(watch, limits, settings.probe_port)

    app.steps["consumer"].add(Turning)
    celeryd_init.connect(on_worker, weak=False)
    beat_init.connect(on_beat, weak=False)


def start(watch: WorkerWatch | BeatWatch, limits: Limits, port: int) -> Probes:
    """Serve; a port that cannot be had ends the process with one line."""
    from app.probes.answers import Probes  # noqa: PLC0415 - a producer imports the app, and needs no metrics

    probes = Probes(watch, limits)
    try:
        listening = listen(port)
    except ConfigurationError as error:
        raise SystemExit(f"headroom: {error}") from None
    events.subscribe(probes.metrics.hear)
    serve(listening, probes)
    return probes


class WorkerPod:
    """What the backlog asks about a worker."""

    def __init__(self, driver: Any) -> None:
        """Ask this driver."""
        self._driver = driver
        self.operations: Operations = driver.operations

    def taken(self) -> int:
        """The id of the next take."""
        return self._driver.state.next_id

    def lanes(self) -> Lanes:
        """At the requeue gate the normal ones alone are known, and none of another broker."""
        queues, line = getattr(self._driver, "queues", None), self._driver.line
        if queues is not None:
            return Lanes((), tuple(queues.waits_for()))
        return Lanes(*line.lanes()) if line is not None and line.consumes else Lanes((), ())

    def is_free(self) -> bool:
        """It may take, nothing that it holds must run alone, and a place of its pool is free."""
        state, host = self._driver.state, self._driver.host
        return state.may_take and state.reachable and not state.runs_alone and host is not None and host.places()

    def holds(self) -> bool:
        """Something."""
        return bool(self._driver.state.held)

    def keeps_door(self) -> bool:
        """As far as it knows."""
        return self._driver.doorkeeper.keeping


class Turning(bootsteps.StartStopStep):
    """Tells the probes when the worker's consumer comes, goes, connects and turns."""

    requires = ("celery.worker.consumer.tasks:Tasks",)
    label = "Probes"

    def __init__(self, c: Any, **options: Any) -> None:
        """Listen to the consumer's attempts to connect, in which its loop stands."""
        self.watch: WorkerWatch = c.app.headroom_probes.watch
        self._entry: Any = None
        for name in ("connect", "ensure_connected"):
            setattr(c, name, self._while_connecting(getattr(c, name)))
        super().__init__(c, **options)

    def start(self, c: Any) -> None:
        """It consumes from now on, through this connection."""
        watch, driver = self.watch, c.app.throttle.driver
        if watch.backlog is None:
            watch.places = lambda: (c.pool.num_processes, len(worker_state.reserved_requests))
            watch.backlog = Backlog(WorkerPod(driver), c.app.headroom_probes.limits.ready_stall_s)
            watch.backlog.start()
        watch.consuming = True
        on_timer = watch.turn
        if c.hub is None and self._join_poller(c):
            on_timer = watch.loop.turn_of_thread
        self._entry = c.timer.call_repeatedly(TURN_S, on_timer)

    def stop(self, _consumer: Any) -> None:
        """The connection is lost, or the worker ends."""
        self.watch.consuming = False
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None

    def _join_poller(self, c: Any) -> bool:
        """Without a hub the loop is kombu's poller; the timer is a greenlet beside it."""
        cycle: Any = getattr(getattr(c.task_consumer.channel, "connection", None), "cycle", None)
        if not hasattr(cycle, "on_poll_start"):
            return False
        begin = cycle.on_poll_start

        def on_poll_start() -> None:
            self.watch.turn()
            begin()

        cycle.on_poll_start = on_poll_start
        return True

    def _while_connecting(self, reach: Any) -> Any:
        def reached(*args: Any, **options: Any) -> Any:
            self.watch.connecting += 1
            try:
                return reach(*args, **options)
            finally:
                self.watch.connecting -= 1

        return reached


def look_after(service: Any, watch: BeatWatch) -> None:
    """Note each look of beat at its schedule, and whether its broker answers."""
    scheduler = service.scheduler
    tick = scheduler.tick

    def noted(*args: Any, **options: Any) -> Any:
        pause_s = tick(*args, **options)
        watch.turn(pause_s or 0.0)
        return pause_s

    scheduler.tick = noted
    Thread(target=_ping, args=(service.app, watch), name="headroom-ping", daemon=True).start()


def _ping(app: Any, watch: BeatWatch) -> None:
    operations: Operations | None = None
    while True:
        try:
            operations = operations or connect(app, app.throttle.settings)
            operations.client.ping()
            watch.broker_away = False
        except (redis.RedisError, KombuError, HeadroomError, OSError):
            watch.broker_away = True
        except Exception:
            logger.exception("headroom: the look at the broker failed; trying on")
            watch.broker_away = True
        time.sleep(PING_EVERY_S)
