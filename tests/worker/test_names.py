# pyright: basic
"""Slips of the pen in policies: what a worker says about a name that means nothing in its app."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

import throttle
from tests.worker.test_start import refused, start
from throttle.errors import ConfigurationError
from throttle.policy import Backoff, Limit, Retries, TimeLimits
from throttle.worker import attempts, names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def charge() -> None:
    """Do nothing."""


@pytest.fixture
def app() -> Iterator[Any]:
    """An app with a slip in each policy. Nothing is connected."""
    made = Celery("shop", broker="redis://localhost:1/0", set_as_current=False)
    made.task(shared=False, name="shop.charge", temporary=("OSEror", OSError), permanent=("absent.Gone",))(charge)
    throttle.install(
        made,
        time_limits=TimeLimits(queues={"crtical": Limit(1, 2), "celery": Limit(1, 2), "shop.charge": Limit(3, 4)}),
        retries=Retries(queues={"elsewhere": Backoff(), "critical": Backoff()}),
    )
    yield made
    made.close()


def test_each_name_that_means_nothing_is_one_line_with_what_may_be_meant(app: Any) -> None:
    limits = "TimeLimits.queues (TASK_TIME_LIMITS) names a queue"
    own = "task shop.charge names"
    assert list(names.doubts(app)) == [
        f"{limits} 'crtical', and this app has none: the nearest is 'critical'",
        f"{limits} 'shop.charge', and this app has none: it is a task, which has its own options, @app.task(...)",
        "Retries.queues (TASK_RETRIES) names a queue 'elsewhere', and this app has none: it has celery, critical",
        f"{own} 'OSEror' as temporary, and no error is called so: Python has no OSEror; the nearest is OSError",
        f"{own} 'absent.Gone' as permanent, and no error is called so: there is no module absent",
    ]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("TimeoutEror", "Python has no TimeoutEror; the nearest is TimeoutError"),
        ("print", "this is no class of errors"),
        ("request.ConnectionError", "there is no module request"),
        ("requests.exceptions.Timeot", "requests.exceptions has no Timeot; the nearest is requests.exceptions.Timeout"),
        ("requests.exception.ConnectionError", "requests has no exception; the nearest is requests.exceptions"),
        ("broken_at_import.Gone", "importing broken_at_import failed: RuntimeError('not here')"),
        ("lacks_another.Gone", "importing lacks_another failed: No module named 'absent'"),
        ("json.loads", "this is no class of errors"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["temporary", "permanent"])
def test_an_error_that_cannot_be_found_is_refused(
    kind: str, name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_at_import.py").write_text("raise RuntimeError('not here')\n")
    (tmp_path / "lacks_another.py").write_text("import absent\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError) as refusal:
        names.resolve(replace(Retries(), **{kind: (name,)}))
    assert str(refusal.value) == f"{name!r} in Retries.{kind} (TASK_{kind.upper()}_ERRORS): {why}"


def test_an_error_is_known_by_its_true_name(app: Any) -> None:
    import requests  # noqa: PLC0415 - it is found by its name

    told = Retries(temporary=("requests.ConnectionError", OSError), permanent=("json.JSONDecodeError", "IOError"))
    app.throttle.resolved = found = names.resolve(told)
    assert found.temporary == ("requests.exceptions.ConnectionError", "OSError")
    assert found.permanent == ("json.decoder.JSONDecodeError", "OSError")
    task = app.tasks["shop.charge"]
    task.temporary = ()
    assert attempts.kind(task, requests.exceptions.ConnectTimeout) == "permanent", "an OSError: what is both, is it"
    app.throttle.resolved = names.resolve(Retries(temporary=("requests.ConnectionError",)))
    assert attempts.kind(task, requests.exceptions.ConnectTimeout) == "temporary"


def test_a_class_inside_a_class_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outer_errors.py").write_text("class Outer:\n    class Gone(Exception): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert names.error_called("outer_errors.Outer.Gone") is sys.modules["outer_errors"].Outer.Gone


def test_a_worker_with_such_a_slip_does_not_start(tmp_path: Path) -> None:
    line = refused(start("redis://127.0.0.1:1/0", tmp_path, app="app.celery", TASK_PERMANENT_ERRORS="ValueEror"))
    why = "Python has no ValueEror; the nearest is ValueError"
    assert line == f"headroom: 'ValueEror' in Retries.permanent (TASK_PERMANENT_ERRORS): {why}"
