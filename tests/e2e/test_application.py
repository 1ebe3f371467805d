"""This project's application, as its two kinds of producers see it."""
# pyright: basic

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tasks.jobs.loads import sleep
from tests.e2e.deployment import OWN, deployed
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pytest_celery import CeleryTestSetup


@deployed(OWN)
def test_a_producer_with_the_code_calls_delay(celery_setup: CeleryTestSetup) -> None:
    assert celery_setup.ready(control=True)
    assert sleep.delay(0.01).get(timeout=20) >= 0.01
    assert sleep.apply_async((0.01,), queue="critical").get(timeout=20) >= 0.01


@deployed(replace(OWN, producer_rings=False))
def test_a_producer_with_the_address_sends_by_name(celery_setup: CeleryTestSetup) -> None:
    running = celery_setup.app.send_task("tasks.jobs.loads.sleep", (2,))
    wait_until(lambda: running.state == "STARTED", what="the task to start")
    critical = celery_setup.app.send_task("tasks.jobs.loads.sleep", (0,), queue="critical")
    assert critical.get(timeout=2) >= 0
    assert not running.ready()
    assert running.get(timeout=20) >= 2
