# pyright: basic
"""What `throttle.install` does to an app: settings, the gate with its bootstep and transport, the signal handlers.

Nothing is sent and the app's configuration is not loaded: what depends on it is set when Celery loads it, so that
`install` may come before or after `config_from_object`.
"""

from __future__ import annotations

import contextlib
import logging
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from throttle.errors import ConfigurationError
from throttle.policy import Retries, TimeLimits
from throttle.settings import ThrottleSettings, load_settings
from throttle.worker import deadline, internals, signals, stopping
from throttle.worker.broker import ANSWER_S, BrokerConnection, time_limits
from throttle.worker.retries import LANES
from throttle.worker.vocabulary import OPTION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from throttle.worker.drain import Drain
    from throttle.worker.driver import Driver

logger = logging.getLogger(__name__)

LATE = ("task_acks_late", "task_reject_on_worker_lost")
DEFAULTS: dict[str, Any] = {
    "task_acks_late": True,  # acknowledged when done: a message belongs to its pod until then
    "task_reject_on_worker_lost": True,  # ... and comes back when the process that ran it is lost
    "worker_prefetch_multiplier": 1,  # a message that waits in a busy pod is one that no idle pod can take
}
"""Celery settings that the brake needs or is better with, set where the app leaves them at their defaults."""
DEFAULTS_OF_THE_TAKE: dict[str, Any] = {
    "worker_enable_prefetch_count_reduction": False,  # after a reconnect the driver counts what still runs, exactly
    "worker_cancel_long_running_tasks_on_connection_loss": False,  # they keep their takes and end in peace
}
"""The same, where the messages are held by the fleet."""
DEFAULTS_OF_REDIS: dict[str, Any] = {
    "broker_channel_error_retry": True,  # one that refuses a command (a replica now, full) is waited for, not died of
    "broker_connection_max_retries": None,  # ... however long it is away
    "redis_socket_timeout": ANSWER_S,  # for results; two minutes by itself, for which a task would keep its place
}
"""The same, where the broker is Redis."""
SCHEDULER = {"beat_scheduler": "throttle.worker.scheduler:Scheduler"}
"""The same, where it fits Celery and kombu: any number of beats, of which one leads."""


@dataclass
class Installation:
    """What `install` made of one app; it stands as `app.throttle`."""

    settings: ThrottleSettings
    critical_queues: tuple[str, ...]
    gate: str
    retry_lane: str = "critical"
    time_limits: TimeLimits = field(default_factory=TimeLimits)
    retries: Retries = field(default_factory=Retries)
    against: str = ""
    """What speaks against the take, where the other gate is used without having been asked for."""
    changed: list[str] = field(default_factory=list)
    """Names of the Celery settings that were set."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of a worker's command line."""
    driver: Driver | None = None
    """In a worker's main process, from `worker_init` on."""
    drain: Drain | None = None
    """Likewise."""
    resolved: Retries | None = None
    """Likewise: `retries` with each error by its true name."""

    def same(self, other: Installation) -> bool:
        """Whether another call asked for the same."""
        return all(getattr(self, name) == getattr(other, name) for name in ASKED)


ASKED = ("settings", "critical_queues", "gate", "retry_lane", "time_limits", "retries")
"""What the caller of `install` decides about an `Installation`."""


def install(
    app: Any,
    *,
    critical_queues: Iterable[str] = ("critical",),
    retry_lane: str = "critical",
    gate: str | None = None,
    time_limits: TimeLimits | None = None,
    retries: Retries | None = None,
    **settings: Any,
) -> Any:
    """See `throttle.install`."""
    with one_line():
        policies = (time_limits or TimeLimits(), retries or Retries())
        return _install(app, critical_queues, retry_lane, gate, policies=policies, settings=settings)


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Under Celery's command line, end with one line instead of a traceback; a program that imports gets the error."""
    try:
        yield
    except ConfigurationError as error:
        if click.get_current_context(silent=True) is None:
            raise
        raise SystemExit(f"headroom: {error}") from None


def _install(
    app: Any,
    critical_queues: Iterable[str],
    retry_lane: str,
    gate: str | None,
    *,
    policies: tuple[TimeLimits, Retries],
    settings: dict[str, Any],
) -> Any:
    if retry_lane not in LANES:
        message = f"retry_lane={retry_lane!r}: allowed is {' or '.join(LANES)}"
        raise ConfigurationError(message)
    if gate not in (None, *internals.GATES):
        message = f"gate={gate!r}: allowed is {' or '.join(internals.GATES)}"
        raise ConfigurationError(message)
    named = not isinstance(critical_queues, str) and isinstance(critical_queues, Iterable)
    names = tuple(critical_queues) if named else ("",)
    if not all(isinstance(name, str) and name for name in names):
        message = f"critical_queues={critical_queues!r}: allowed is a sequence of queue names, such as ('critical',)"
        raise ConfigurationError(message)
    chosen, against = internals.choose(gate)
    made = Installation(load_settings(**settings), names, chosen, retry_lane, *policies, against)
    before = getattr(app, "throttle", None)
    if before is not None:
        if not before.same(made):
            message = (
                f"install was called before on app {app.main!r} with other arguments; allowed is one call for an app"
            )
            raise ConfigurationError(message)
        return app
    app.throttle = made
    stopping.install()
    app.steps["consumer"].add(_bootstep(made.gate))
    deadline.install(app, made.settings.publish_timeout_s)
    app.on_after_configure.connect(_configured, weak=False)
    if app.configured:
        configure(app)
    signals.connect()
    return app


def _bootstep(gate: str) -> type[Any]:
    """The consumer's side of a gate; imported only for it, since what the take subclasses may be gone."""
    if gate == "take":
        from throttle.worker.step import Brake  # noqa: PLC0415 - see above

        return Brake
    from throttle.worker.requeue import RequeueGate  # noqa: PLC0415 - see above

    return RequeueGate


def _configured(sender: Any, **_: Any) -> None:
    with one_line():
        configure(sender)


def configure(app: Any) -> None:
    """Set what the app leaves at its defaults, and the transport. Runs each time that Celery loads it."""
    made, conf = app.throttle, app.conf
    on_redis = _is_redis(conf)
    defaults = DEFAULTS | (DEFAULTS_OF_THE_TAKE if made.gate == "take" else {})
    defaults |= DEFAULTS_OF_REDIS if on_redis else {}
    defaults |= {"broker_pool_acquire_timeout": made.settings.publish_timeout_s} if on_redis else {}
    defaults |= SCHEDULER if on_redis and not internals.moved("beat") else {}
    for name, value in defaults.items():
        if not _chosen(conf, name) and conf[name] != value:
            conf[name] = value
            made.changed.append(name)
    if on_redis:
        app.amqp.Connection = BrokerConnection
        conf.broker_transport_options = {**time_limits(made.settings), **conf.broker_transport_options}
    if _url(conf) and (on_redis or made.gate == "take"):
        check_broker(conf)
    if made.gate == "take":
        from throttle.worker.take import Connection  # noqa: PLC0415 - only for this gate, see _bootstep

        app.amqp.Connection = Connection
        _take_through_ours(made, conf)


def _take_through_ours(made: Installation, conf: Any) -> None:
    rule = made.settings.rule()._asdict()
    conf.broker_transport_options = {
        **conf.broker_transport_options,
        OPTION: {"fleet": made.settings.fleet, **rule, "critical": made.critical_queues, "retry_lane": made.retry_lane},
    }
    conf.broker_transport = f"throttle.worker.take:{_transport(conf)}"
    if _url(conf).startswith("rediss:") and not conf.broker_use_ssl and "ssl_" not in _url(conf):
        # kombu does this by the transport's name, which is ours now; it warns as well
        conf.broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_NONE}
        logger.warning("rediss:// without ssl_cert_reqs: the server's certificate is not verified")


def check_broker(conf: Any) -> None:
    """Refuse addresses with which a fleet would not be one; raises `ConfigurationError`. Of Redis alone."""
    read, write = _joined(conf.broker_read_url), _url(conf)
    if read != write:
        message = (
            f"broker_read_url {_hidden(read)!r} and broker_write_url {_hidden(write)!r} differ: what is taken and who "
            "takes it must be in one Redis; allowed is the same for both"
        )
        raise ConfigurationError(message)
    check_address(write)


def check_address(url: str) -> None:
    """Refuse what is no address of one Redis, or of the Sentinels that watch it; raises `ConfigurationError`."""
    addresses = url.split(";")
    for each in addresses:
        scheme = each.partition(":")[0]
        try:
            if scheme not in SCHEMES:
                message = f"{scheme or 'nothing'} is no scheme of Redis"
                raise ValueError(message)  # noqa: TRY301 - said in one place, below
            parts = urlsplit(each)
            _ = parts.port  # raises when it is no number
            if scheme != "redis+socket":
                int(parts.path.strip("/") or 0)
        except ValueError as error:
            message = (
                f"broker address {_hidden(each)!r}: {error}; "
                f"allowed is one such as redis://host:6379/0 ({', '.join(SCHEMES)})"
            )
            raise ConfigurationError(message) from None
    if len(addresses) > 1 and not all(each.startswith("sentinel:") for each in addresses):
        message = (
            f"broker address {_hidden(url)!r}: a pod that fails over to the second Redis leaves the first one's fleet; "
            "allowed is one address, or those of Sentinels (sentinel://a:26379;sentinel://b:26379)"
        )
        raise ConfigurationError(message)


def _hidden(url: str) -> str:
    """An address without user and password."""
    return re.sub("//[^@/;]*@", "//**@", url)


SCHEMES = ("redis", "rediss", "redis+socket", "sentinel")


def check(app: Any) -> None:
    """Refuse an app whose configuration would lose tasks; raises `ConfigurationError`."""
    if app.throttle.gate == "take" or _is_redis(app.conf):
        check_broker(app.conf)
    off = [name for name in LATE if not app.conf[name]]
    if off:
        message = (
            f"{' and '.join(off)} switched off: messages would be lost with their pod; allowed is on, for both "
            f"{' and '.join(LATE)} (a single task may have acks_late=False)"
        )
        raise ConfigurationError(message)


def early_tasks(app: Any) -> list[str]:
    """Names of tasks of the app that are acknowledged before they run."""
    return sorted(name for name, task in app.tasks.items() if not name.startswith("celery.") and not task.acks_late)


def _chosen(conf: Any, name: str) -> bool:
    """Whether the app sets this itself, under its own name, an old one or a prefixed one."""
    return conf.value_set_for(name)


def _url(conf: Any) -> str:
    return _joined(conf.broker_write_url)


def _joined(url: Any) -> str:
    return url if isinstance(url, str) else ";".join(url or ())


def _is_redis(conf: Any) -> bool:
    return _url(conf).partition(":")[0] in SCHEMES


def _transport(conf: Any) -> str:
    scheme = _url(conf).partition(":")[0]
    return {"sentinel": "SentinelTransport", "rediss": "TLSTransport"}.get(scheme, "Transport")
