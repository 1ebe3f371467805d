"""The application as the image runs it: `app.celery`, and what a container adds."""

from __future__ import annotations

from app.celery import app
from app.container.steps import install

__all__ = ["app"]

install(app)
