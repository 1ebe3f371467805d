"""The Celery application: ``celery -A app.celery worker``, and what a producer imports.

Importing it opens no connection. A producer that has this code imports it once and calls
``task.delay(...)``; its messages then ring a waiting pod at once.

    import app.celery
    from tasks.jobs.loads import sleep

    sleep.delay(3)                                # normal work
    sleep.apply_async((3,), queue="critical")     # may use the pods that are kept free
"""
# pyright: basic

from __future__ import annotations

import click
from celery import Celery
from kombu.entity import Exchange, Queue

import throttle
from app.origin import check_origin
from app.probes.installing import install as install_probes
from app.settings import Settings, load_settings
from throttle.errors import ConfigurationError


def create(settings: Settings) -> Celery:
    """Make the application from its settings and install the brake.

    Raises:
        ConfigurationError: a setting of the brake is not allowed.
    """
    from tasks.jobs import MODULES  # noqa: PLC0415 - only once it is known whose package that is

    made = Celery("headroom", broker=settings.redis_url, backend=settings.results, include=MODULES)
    made.conf.update(
        headroom_jobs_folder=str(settings.jobs_folder) if settings.jobs_folder else None,
        headroom_checkpoint_store=settings.checkpoint_store,
        headroom_checkpoint_ttl_s=settings.checkpoint_ttl_s,
        headroom_checkpoint_max_bytes=settings.checkpoint_max_bytes,
        headroom_checkpoint_every_s=settings.checkpoint_every_s,
        headroom_checkpoint_ca=str(settings.checkpoint_ca) if settings.checkpoint_ca else None,
        # Queues. Each has an exchange of its own name: two queues bound by one key both get the message.
        task_default_queue=settings.task_queue,
        task_queues=[
            Queue(name, Exchange(name), routing_key=name)
            for name in dict.fromkeys((settings.task_queue, settings.critical_queue, *settings.shard_queues))
        ],
        # A message is data, never code.
        task_serializer="json",
        result_serializer="json",
        event_serializer="json",
        accept_content=["json"],
        # A task is acknowledged when it is done, and comes back when its pod dies.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        # A child that has grown, or has done much, is replaced between two tasks.
        worker_max_memory_per_child=settings.max_memory_mb * 1024 or None,
        worker_max_tasks_per_child=settings.max_tasks or None,
        # What a person wants to see of a task, and for how long.
        task_track_started=True,
        result_expires=settings.result_expires_s,
        timezone="UTC",
        # A pod may start before its Redis does, and outlives a restart of it.
        broker_connection_retry_on_startup=True,
        redis_socket_keepalive=True,
        redis_retry_on_timeout=True,
        beat_schedule=schedule(settings),
    )
    throttle.install(
        made,
        critical_queues=(settings.critical_queue,),
        time_limits=settings.time_limits,
        retries=settings.retries,
    )
    install_probes(made, settings)
    if settings.shards:
        from app.shards import broadcast, holding  # noqa: PLC0415 - as above

        broadcast.install(made)
        holding.install(made, settings)
    # Producers call from any thread; the current app alone is known only in the importing one.
    made.set_default()
    return made


def schedule(settings: Settings) -> dict[str, dict[str, object]]:
    """What beat sends: the fleet's pulse, which nobody needs any more when the next one is due; rounds of votes."""
    entries: dict[str, dict[str, object]] = {}
    if settings.pulse_every_s:
        entries["fleet-pulse"] = {
            "task": "tasks.jobs.pulse.pulse",
            "schedule": settings.pulse_every_s,
            "options": {"expires": settings.pulse_every_s},
        }
    if settings.shards:
        from app.shards import broadcast  # noqa: PLC0415 - only once it is known whose package `tasks` is

        entries["shard-round"] = broadcast.entry()
    return entries


def _create_or_refuse() -> Celery:
    """Make the application; under Celery's command line a bad setting is one line, not a traceback.

    A program that imports this module gets the exception instead: it decides what that means to it.
    """
    try:
        check_origin()
        return create(load_settings())
    except ConfigurationError as error:
        if click.get_current_context(silent=True) is None:
            raise
        raise SystemExit(f"headroom: {error}") from None


app = _create_or_refuse()
