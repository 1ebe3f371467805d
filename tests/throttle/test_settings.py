"""Settings: the environment's names, and one line for each bad value."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest

from throttle.errors import ConfigurationError, HeadroomError
from throttle.settings import ThrottleSettings, allowed, load_settings, variables

VARIABLES = ("REDIS_URL", "THROTTLE_FLEET", "POD_NAME", "THROTTLE_RATIO", "THROTTLE_TTL", "THROTTLE_MAX_DELIVERIES",
             "THROTTLE_JOURNAL", "THROTTLE_STARTUP_S", "THROTTLE_BEAT_LEASE", "PUBLISH_TIMEOUT",
             "THROTTLE_ON_REDIS_ERROR", "THROTTLE_TRIM_MB",
             "THROTTLE_DRAIN_TIMEOUT", "THROTTLE_DRAIN_GRACE", "THROTTLE_CONTROL_PORT")  # fmt: skip


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_defaults() -> None:
    settings = load_settings()
    assert settings.redis_url == "redis://localhost:6379/0"
    assert (settings.fleet, settings.ratio, settings.ttl_s, settings.beat_s) == ("default", 0.8, 30.0, 10.0)
    assert settings.pod == socket.gethostname()
    assert settings.rule() == (0.8, 30000, 5, 0)


def test_environment_then_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THROTTLE_RATIO", "0.5")
    monkeypatch.setenv("POD_NAME", "worker-7")
    assert load_settings().ratio == 0.5
    assert load_settings(ratio=None).pod == "worker-7"
    assert load_settings(ratio=0.9).ratio == 0.9


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("THROTTLE_RATIO", "0", "THROTTLE_RATIO='0': allowed is a number above 0 and up to 1"),
        ("THROTTLE_RATIO", "1.5", "THROTTLE_RATIO='1.5': allowed is a number above 0 and up to 1"),
        ("THROTTLE_RATIO", "abc", "THROTTLE_RATIO='abc': allowed is a number above 0 and up to 1"),
        ("THROTTLE_RATIO", "nan", "THROTTLE_RATIO='nan': allowed is a number above 0 and up to 1"),
        ("THROTTLE_TTL", "0", "THROTTLE_TTL='0': allowed is a number of seconds from 3 to 86400"),
        ("THROTTLE_TTL", "inf", "THROTTLE_TTL='inf': allowed is a number of seconds from 3 to 86400"),
        ("THROTTLE_FLEET", "a b", "THROTTLE_FLEET='a b': allowed are letters, digits and _ . : -"),
        ("POD_NAME", "a#b", "POD_NAME='a#b': allowed is a name without '#', spaces and control characters"),
        ("THROTTLE_MAX_DELIVERIES", "0", "THROTTLE_MAX_DELIVERIES='0': allowed is a whole number from 1 to 1000000"),
        ("THROTTLE_JOURNAL", "-1", "THROTTLE_JOURNAL='-1': allowed is a whole number from 0 (off) to 100000000"),
        ("THROTTLE_STARTUP_S", "-1", "THROTTLE_STARTUP_S='-1': allowed is a number of seconds from 0 to 3600"),
        ("THROTTLE_ON_REDIS_ERROR", "maybe", "THROTTLE_ON_REDIS_ERROR='maybe': allowed is allow or deny"),
    ],
)
def test_bad_environment(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, line: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("ratio", 0, "ratio=0: allowed is a number above 0 and up to 1"),
        ("ttl_s", 2.9, "ttl_s=2.9: allowed is a number of seconds from 3 to 86400"),
        ("pod", "a b", "pod='a b': allowed is a name without '#', spaces and control characters"),
    ],
)
def test_bad_argument_is_named_as_the_caller_wrote_it(name: str, value: Any, line: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(**{name: value})
    assert str(caught.value) == line


def test_unknown_argument() -> None:
    with pytest.raises(ConfigurationError, match=r"^unknown setting 'ratoi'; allowed: redis_url, fleet, pod, ratio, "):
        load_settings(ratoi=0.5)


def test_a_variable_that_is_no_setting_is_named_once_with_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("THROTTLE_MAX_DELIVERY", "THROTTLE_RATOI", "throttle_ratio", "THROTTLE_TTL", "THROTTLED"):
        monkeypatch.setenv(name, "0.5" if name != "THROTTLE_TTL" else "6")
    for name in ("THROTTLE_SERVICE_HOST", "THROTTLE_REDIS_SERVICE_PORT_TCP", "THROTTLE_PORT", "THROTTLE_PORT_80_TCP"):
        monkeypatch.setenv(name, "of Kubernetes")
    with caplog.at_level(logging.WARNING):
        assert load_settings().ratio == 0.5
        load_settings(fleet="another")
    line = "headroom: there is no setting %s, the variable is not used; the nearest setting is %s"
    assert [record.getMessage() for record in caplog.records] == [
        line % ("THROTTLE_MAX_DELIVERY", "THROTTLE_MAX_DELIVERIES"),
        line % ("THROTTLE_RATOI", "THROTTLE_RATIO"),
    ]


def test_every_variable_is_known() -> None:
    assert set(variables()) == set(VARIABLES)


def test_every_setting_says_what_is_allowed() -> None:
    for field in ThrottleSettings.model_fields:
        assert allowed(field).startswith("allowed ")


def test_one_error_tree() -> None:
    assert issubclass(ConfigurationError, HeadroomError)
    assert issubclass(ConfigurationError, ValueError)
