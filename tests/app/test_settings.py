"""The application's settings: defaults, the environment, and one clear line for what is not allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.origin import check_origin
from app.settings import ALLOWED, Settings, load_settings, variables, without_password
from tasks.checkpoints.choosing import addresses
from throttle.errors import ConfigurationError


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing set by the machine on which the tests run."""
    for variable in variables().values():
        monkeypatch.delenv(variable, raising=False)


def test_the_names_and_defaults_that_users_know() -> None:
    settings = load_settings()
    assert settings.redis_url == "redis://localhost:6379/0"
    assert settings.task_queue == "task_queue"
    assert settings.critical_queue == "critical"
    assert settings.results == settings.redis_url
    assert settings.jobs_folder is None
    assert set(variables().values()) >= {"REDIS_URL", "TASK_QUEUE", "RESULT_BACKEND", "JOBS_FOLDER"}


def test_the_environment_wins_over_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "REDIS_URL": "rediss://user:secret@host:1/2",
        "TASK_QUEUE": "mine",
        "RESULT_BACKEND": "disabled://",
        "RESULT_EXPIRES": "60",
        "JOBS_FOLDER": "/srv/jobs",
        "PULSE_EVERY": "0",
    }.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert settings == Settings(
        redis_url="rediss://user:secret@host:1/2",
        task_queue="mine",
        result_backend="disabled://",
        result_expires_s=60,
        jobs_folder=Path("/srv/jobs"),
        pulse_every_s=0,
    )
    assert settings.results == "disabled://"


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("REDIS_URL", "localhost:6379", "an address such as redis://host:6379/0"),
        ("REDIS_URL", "amqp://host", "an address such as redis://host:6379/0"),
        ("REDIS_URL", "", "an address such as redis://host:6379/0"),
        ("TASK_QUEUE", "two words", "letters, digits"),
        ("TASK_QUEUE", "", "letters, digits"),
        ("TASK_QUEUE", "a,b", "letters, digits"),
        ("CRITICAL_QUEUE", "task_queue", "not the name in TASK_QUEUE"),
        ("RESULT_EXPIRES", "59", "60 to 31536000"),
        ("RESULT_EXPIRES", "soon", "60 to 31536000"),
        ("JOBS_FOLDER", "relative/folder", "absolute path"),
        ("CHECKPOINT_STORE", "", "redis, or etcd://host:2379"),
        ("CHECKPOINT_STORE", "redis://host", "redis, or etcd://host:2379"),
        ("CHECKPOINT_STORE", "etcd://", "redis, or etcd://host:2379"),
        ("CHECKPOINT_STORE", "etcd://host:0", "redis, or etcd://host:2379"),
        ("CHECKPOINT_STORE", "etcd://host:2379,", "redis, or etcd://host:2379"),
        ("CHECKPOINT_STORE", "etcd://host/path", "redis, or etcd://host:2379"),
        ("CHECKPOINT_TTL", "59", "60 to 31536000"),
        ("CHECKPOINT_MAX_BYTES", "1000001", "1024 to 1000000"),
        ("CHECKPOINT_EVERY", "0", "0.1 to 3600"),
        ("PULSE_EVERY", "-1", "0 (off) to 86400"),
        ("PULSE_EVERY", "nan", "0 (off) to 86400"),
        ("PULSE_EVERY", "abc", "0 (off) to 86400"),
        ("DISCORD_BOT_ID", "my-bot", "a whole number"),
        ("DISCORD_BOT_ID", "1 ", "a whole number"),
        ("DISCORD_INTENTS", "-1", "0 to 9007199254740991"),
        ("DISCORD_API_URL", "discord.com", "https://discord.com/api/v10"),
        ("DISCORD_API_URL", "http://[::1", "https://discord.com/api/v10"),
        ("DISCORD_API_URL", "https://:443/api", "https://discord.com/api/v10"),
        ("DISCORD_GATEWAY_URL", "wss://gateway:99999", "wss://gateway.discord.gg, or nothing"),
        ("DISCORD_API_URL", "https://discord.com/api?v=10", "https://discord.com/api/v10"),
        ("DISCORD_GATEWAY_URL", "https://gateway", "wss://gateway.discord.gg"),
        ("SHARD_LOAD_LIMIT", "0", "1 to 1000000"),
        ("SHARD_TTL", "2", "3 to 60"),
        ("SHARD_TTL", "inf", "3 to 60"),
        ("SHARD_LIVENESS", "etcd", "redis or kubernetes"),
        ("SHARD_PODS", "worker", "labels such as"),
        ("TASK_TIME_LIMIT", "-1", "0 (none) to 31536000"),
        ("TASK_TIME_LIMIT", "inf", "0 (none) to 31536000"),
        ("TASK_TIME_LIMITS", "critical=60/30", "soft below hard"),
        ("TASK_TIME_LIMITS", "critical=60", "QUEUE=SOFT/HARD"),
        ("TASK_OVERRUN", "kill", "warn or exit"),
        ("TASK_MAX_RETRIES", "many", "0 to 1000"),
        ("TASK_RETRY_BACKOFF", "-1", "not above TASK_RETRY_BACKOFF_MAX"),
        ("TASK_RETRIES", "critical=3/60/1", "first not above longest"),
        ("TASK_TEMPORARY_ERRORS", "Timeout Error", "names of errors"),
        ("WORKER_MAX_MEMORY", "256Mi", "whole number of MiB"),
        ("WORKER_MAX_TASKS", "-1", "0 (off)"),
    ],
)
def test_a_bad_value_is_one_line(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, allowed: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    text = str(refused.value)
    assert text.startswith(f"{variable}={value!r}: allowed ")
    assert allowed in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("first", "second"), [("TASK_SOFT_TIME_LIMIT", "TASK_TIME_LIMIT"), ("TASK_RETRY_BACKOFF", "TASK_RETRY_BACKOFF_MAX")]
)
def test_two_that_do_not_go_together_are_one_line(monkeypatch: pytest.MonkeyPatch, first: str, second: str) -> None:
    monkeypatch.setenv(first, "60")
    monkeypatch.setenv(second, "30")
    with pytest.raises(ConfigurationError, match=rf"^{first}='60.0': allowed .*{second}$"):
        load_settings()


def test_policies_are_made_of_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "TASK_SOFT_TIME_LIMIT": "600",
        "TASK_TIME_LIMIT": "660",
        "TASK_TIME_LIMITS": "critical=30/60, endless=0/0",
        "TASK_OVERRUN": "exit",
        "TASK_MAX_RETRIES": "5",
        "TASK_RETRIES": "critical=2/0.5/60",
        "TASK_TEMPORARY_ERRORS": "TimeoutError, requests.exceptions.ConnectionError",
        "TASK_PERMANENT_ERRORS": "ValueError",
    }.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    limits, retries = settings.time_limits, settings.retries
    assert [limits.of(queue) for queue in ("any", "critical", "endless")] == [(600, 660), (30, 60), (0, 0)]
    assert limits.overrun == "exit"
    assert [retries.of(queue) for queue in ("any", "critical")] == [(5, 1, 600), (2, 0.5, 60)]
    assert retries.temporary == ("TimeoutError", "requests.exceptions.ConnectionError")
    assert retries.permanent == ("ValueError",)


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "http://user:secret@host:1/2")
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert "secret" not in str(refused.value)
    assert without_password("redis://:p@ss@host/1") != "redis://:p@ss@host/1"
    assert without_password("redis://host/1") == "redis://host/1"


@pytest.mark.parametrize(
    ("address", "members"),
    [
        ("etcd://a", [("a", 2379)]),
        ("etcd://a:1,b.c:65535/", [("a", 1), ("b.c", 65535)]),
        ("etcds://[::1]:5,[fe80::1]", [("::1", 5), ("fe80::1", 2379)]),
    ],
)
def test_an_etcd_has_one_address_or_several(address: str, members: list[tuple[str, int]]) -> None:
    assert Settings(checkpoint_store=address).checkpoint_store == address
    assert addresses(address) == (address.startswith("etcds"), members)


def test_an_empty_folder_means_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBS_FOLDER", "")
    assert load_settings().jobs_folder is None


def test_every_field_says_what_is_allowed() -> None:
    assert set(ALLOWED) == set(Settings.model_fields)


def test_our_packages_come_from_here() -> None:
    check_origin()


def test_somebody_elses_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "somebody_elses"
    other.mkdir()
    (other / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=rf"'somebody_elses' comes from {other}, not from"):
        check_origin(names=("somebody_elses",))
    with pytest.raises(ConfigurationError, match="'no_such_package' comes from nowhere"):
        check_origin(names=("no_such_package",))


# ---------------------------------------------------------------- Discord

TOKEN = "MTIz.secret-Of_the.bot"  # noqa: S105 - of no bot


def test_there_are_no_shards_unless_token_and_bot_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not load_settings().shards
    monkeypatch.setenv("DISCORD_TOKEN", "")
    monkeypatch.setenv("DISCORD_BOT_ID", "")
    assert not load_settings().shards
    monkeypatch.setenv("DISCORD_TOKEN", TOKEN)
    monkeypatch.setenv("DISCORD_BOT_ID", "123456789012345678")
    settings = load_settings()
    assert settings.shards
    assert settings.discord_token is not None
    assert settings.discord_token.get_secret_value() == TOKEN
    assert (settings.discord_intents, settings.shard_ttl_s, settings.shard_liveness) == (1, 9.0, "redis")
    assert settings.discord_api_url == "https://discord.com/api/v10"


@pytest.mark.parametrize(("given", "value", "missing"), [("TOKEN", TOKEN, "BOT_ID"), ("BOT_ID", "1", "TOKEN")])
def test_one_without_the_other_is_one_line(
    monkeypatch: pytest.MonkeyPatch, given: str, value: str, missing: str
) -> None:
    monkeypatch.setenv(f"DISCORD_{given}", value)
    with pytest.raises(ConfigurationError, match=f"^DISCORD_{given} is set and DISCORD_{missing} is not: ") as refused:
        load_settings()
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize("token", [f"Bot {TOKEN}", f"{TOKEN}\n", f"{TOKEN}\u00e9", " "])
def test_the_token_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("DISCORD_TOKEN", token)
    monkeypatch.setenv("DISCORD_BOT_ID", "1")
    with pytest.raises(ConfigurationError, match=r"^DISCORD_TOKEN='\*\*\*': allowed is a token") as refused:
        load_settings()
    assert refused.value.__cause__ is None
    assert TOKEN not in str(refused.value)
    monkeypatch.setenv("DISCORD_TOKEN", TOKEN)
    settings = load_settings()
    assert TOKEN not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
