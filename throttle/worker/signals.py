# pyright: basic
"""The handlers of Celery's signals: what happens when a worker starts, before each task, and when it ends.

==================  ==================================================================================================
`celeryd_init`      notes the options of the command line
`worker_init`       checks the settings and the names in them (`names`), reaches Redis, looks whether it is allowed
                    what it needs there, joins the fleet under the pod's name, starts the heartbeat
`worker_ready`      says in one line what this worker is
`task_prerun`       verifies that the task came by a take or with a permit, in the process that runs it
`task_postrun`      after a large task, gives memory back to the system (`memory`)
`worker_shutdown`   leaves the fleet
`before_task_publish`  notes in a message when it was sent, for the time that tasks wait
==================  ==================================================================================================

`task_prerun` cannot stop a task: Celery logs what a handler raises and goes on. It is the check on the brake and not
the brake. A task that runs without a take (delivered past the transport) is counted in the fleet's `stats`, field
`violations`.

A start that is refused ends with one line on standard error and exit code 1. One that is ended between the join and
Celery's own handlers of signals, by SIGTERM or by an error, leaves the fleet as the process ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from typing import Any

import redis
from celery import signals
from celery.apps.worker import REMAP_SIGTERM
from celery.concurrency import get_implementation
from kombu.exceptions import KombuError

from throttle.errors import HeadroomError, NameClash, RedisUnreachable
from throttle.worker import (
    attempts,
    ending,
    guarding,
    installing,
    limits,
    listening,
    memory,
    names,
    ownership,
    relaying,
    retries,
    stopping,
    telling,
)
from throttle.worker.connecting import reach
from throttle.worker.drain import Drain
from throttle.worker.driver import Driver
from throttle.worker.membership import clash_line
from throttle.worker.requeue_driver import GateDriver

logger = logging.getLogger(__name__)

VIOLATIONS = "violations"
"""Field of the fleet's `stats`: tasks that ran without a take."""
RETRY_S = 0.2


def connect() -> None:
    """Connect the handlers; each looks whether the app that a signal concerns is throttled. Safe to repeat."""
    signals.celeryd_init.connect(celeryd_init)
    signals.worker_init.connect(worker_init)
    signals.worker_ready.connect(worker_ready)
    signals.task_prerun.connect(task_prerun)
    signals.task_prerun.connect(memory.task_prerun)
    signals.task_postrun.connect(memory.task_postrun)
    signals.worker_shutdown.connect(worker_shutdown)
    signals.before_task_publish.connect(telling.stamp)


def celeryd_init(instance: Any, options: dict[str, Any], **_: Any) -> None:
    """Note the options of the command line."""
    made = _installation(instance.app)
    if made is not None:
        made.options = options


def worker_init(sender: Any, **_: Any) -> None:
    """Join the fleet and start the heartbeat, or refuse to start."""
    made = _installation(sender.app)
    if made is None:
        return
    try:
        installing.check(sender.app)
        made.resolved = names.resolve(made.retries)
        made_for = Driver if made.gate == "take" else GateDriver
        driver = made_for(reach(sender.app, made.settings, made.options), made.settings)
        driver.read_clock()
        drain = Drain(
            driver,
            made.settings,
            term_is_cold=REMAP_SIGTERM == "SIGQUIT",
            soft_s=sender.app.conf.worker_soft_shutdown_timeout or 0.0,
        )
        drain.listen()
        end_in_order(driver)
        join(driver)
        drain.publish()
    except HeadroomError as error:
        raise SystemExit(f"headroom: {error}") from None
    made.driver, made.drain = driver, drain
    if get_implementation(sender.pool_cls).__module__ == limits.CHILDREN:
        relaying.install()
    stopping.ways.prepare()
    listening.install()
    guarding.guard_tasks(sender.app)
    driver.start()
    consume_critical(sender.app, made.critical_queues)
    critical = made.critical_queues[0] if made.critical_queues and made.gate == "requeue" else ""
    retries.publish(sender.app, made.retry_lane, to=critical)
    attempts.watch(sender.app)


def end_in_order(driver: Driver) -> None:
    """Have this process leave the fleet however its start ends; a SIGTERM ends it, until Celery hears of it."""

    def leave() -> None:
        if os.getpid() == driver.pid:
            driver.leave()

    atexit.register(leave)
    ending.listen()


def join(driver: Driver) -> None:
    """The first JOIN, repeated while an older incarnation may be a dead container whose last beat is still fresh.

    Raises:
        NameClash: the older incarnation beats; or it was still there when `startup_s` was over.
        RedisUnreachable: Redis went away in the meantime.
    """
    settings = driver.settings
    give_up_s = time.monotonic() + settings.startup_s + settings.beat_s
    while not driver.refused and time.monotonic() < give_up_s:
        ending.if_asked()
        try:
            if driver.beat():
                return
        except (redis.RedisError, OSError) as error:
            if time.monotonic() + RETRY_S > give_up_s:
                message = f"Redis went away while pod {settings.pod!r} joined fleet {settings.fleet!r}: {error}"
                raise RedisUnreachable(message) from None
        time.sleep(RETRY_S)
    rival = driver.state.rival
    raise NameClash(clash_line(settings, driver.refused or (rival.other if rival else "unknown")))


def consume_critical(app: Any, names: tuple[str, ...]) -> None:
    """Add the critical queues to what this worker consumes; a queue that the app does not declare is made."""
    queues = app.amqp.queues
    for name in names:
        if name not in queues.consume_from:
            queues.select_add(queues[name] if name in queues or queues.create_missing else queues.new_missing(name))


def worker_ready(sender: Any, **_: Any) -> None:
    """Say what this worker is, what `install` set for it, and which tasks are acknowledged early."""
    app = sender.app
    made = _installation(app)
    if made is None or made.driver is None:
        return
    settings = made.settings
    logger.info(
        "headroom: pod %s in fleet %s takes from %s (critical: %s), gate %s, ratio %g, ttl %g s; set by install: %s",
        settings.pod,
        settings.fleet,
        ", ".join(sorted(app.amqp.queues.consume_from)),
        ", ".join(made.critical_queues) or "none",
        made.gate,
        settings.ratio,
        settings.ttl_s,
        ", ".join(made.changed) or "nothing",
    )
    if not limits.interrupts(sender.pool) and limits.wanted(app):
        logger.warning(
            "headroom: this pool cannot end a task at its time limit: the log names one that runs on (overrun: %s)",
            made.time_limits.overrun,
        )
    if made.gate == "requeue":
        logger.warning(
            'headroom: gate="requeue"%s: the reserve holds, but a message may be lost when this process is killed '
            "while kombu fetches it, and one that it held comes back only by the visibility timeout (docs/limits.md)",
            f" because {made.against}" if made.against else "",
        )
    names.tell(app)
    early = installing.early_tasks(app)
    if early:
        logger.warning(
            "headroom: acknowledged before they run, so lost with their pod (acks_late=False): %s", ", ".join(early)
        )


def worker_shutdown(sender: Any, **_: Any) -> None:
    """Leave the fleet, if the bootstep has not done so (a worker that never got as far as consuming)."""
    made = _installation(sender.app)
    if made is not None and made.driver is not None:
        made.driver.leave()


def task_prerun(task: Any = None, **_: Any) -> None:
    """Verify that the running task came by a take; count a violation when it did not. Never raises.

    No round trip for a task that has one: whether the fleet still counts it is what `throttle.still_mine` asks.
    """
    stopping.ways.way.begin()
    made = _installation(task.app)
    request = task.request
    if (
        made is None
        or request.is_eager
        or request.called_directly
        or ownership.mark(task).keys() & {"take", "permit", "broadcast"}
    ):
        return
    logger.warning("task %s[%s] was not taken: it runs against the rule", task.name, request.id)
    try:
        operations = ownership.operations(task.app)
        operations.client.hincrby(operations.keys.stats(), VIOLATIONS, 1)
        operations.client.pexpire(operations.keys.stats(), STATS_MS)
    except (redis.RedisError, KombuError, OSError, HeadroomError) as error:
        logger.debug("cannot count the violation of %s: %s", request.id, error)


STATS_MS = 7 * 24 * 3600 * 1000


def _installation(app: Any) -> installing.Installation | None:
    return getattr(app, "throttle", None)
