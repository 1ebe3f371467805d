"""Somebody else's Celery application, to which one line was added: ``throttle.install(app)``.

Its tasks are those that pytest-celery brings for the workers that it tests.
"""
# pyright: basic

from __future__ import annotations

import os

from celery import Celery
from pytest_celery.vendors.worker import tasks  # noqa: F401 - shared tasks: importing them is enough

import throttle

app = Celery("celery_test_app", broker=os.environ["REDIS_URL"], backend=os.environ["RESULT_BACKEND"])
app.conf.broker_connection_retry_on_startup = True
throttle.install(app)
