# pyright: basic
"""What `throttle.install` does to an app: settings, the gate with its bootstep and transport, the signal handlers.

Nothing is sent and the app's configuration is not loaded: what depends on it is set when Celery loads it, so that
`install` may come before or after `config_from_object`.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from throttle.errors import ConfigurationError
from throttle.settings import ThrottleSettings, load_settings
from throttle.worker import internals, retries, signals
from throttle.worker.vocabulary import OPTION

if TYPE_CHECKING:
    from collections.abc import Iterable

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


@dataclass
class Installation:
    """What `install` made of one app; it stands as `app.throttle`."""

    settings: ThrottleSettings
    critical_queues: tuple[str, ...]
    gate: str
    retry_lane: str = "critical"
    against: str = ""
    """What speaks against the take, where the other gate is used without having been asked for."""
    changed: list[str] = field(default_factory=list)
    """Names of the Celery settings that were set."""
    driver: Driver | None = None
    """In a worker's main process, from `worker_init` on."""

    def same(self, other: Installation) -> bool:
        """Whether another call asked for the same."""
        return all(getattr(self, name) == getattr(other, name) for name in ASKED)


ASKED = ("settings", "critical_queues", "gate", "retry_lane")
"""What the caller of `install` decides about an `Installation`."""


def install(
    app: Any,
    *,
    critical_queues: Iterable[str] = ("critical",),
    retry_lane: str = "critical",
    gate: str | None = None,
    **settings: Any,
) -> Any:
    """See `throttle.install`."""
    if retry_lane not in retries.LANES:
        message = f"retry_lane={retry_lane!r}: allowed is {' or '.join(retries.LANES)}"
        raise ConfigurationError(message)
    if gate not in (None, *internals.GATES):
        message = f"gate={gate!r}: allowed is {' or '.join(internals.GATES)}"
        raise ConfigurationError(message)
    if isinstance(critical_queues, str):
        message = (
            f"critical_queues={critical_queues!r}: allowed is a sequence of queue names, such as ({critical_queues!r},)"
        )
        raise ConfigurationError(message)
    chosen, against = internals.choose(gate)
    made = Installation(load_settings(**settings), tuple(critical_queues), chosen, retry_lane, against)
    before = getattr(app, "throttle", None)
    if before is not None:
        if not before.same(made):
            message = (
                f"install was called before on app {app.main!r} with other arguments; allowed is one call for an app"
            )
            raise ConfigurationError(message)
        return app
    app.throttle = made
    app.steps["consumer"].add(_bootstep(made.gate))
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
    configure(sender)


def configure(app: Any) -> None:
    """Set what the app leaves at its defaults, and the transport. Runs each time that Celery loads it."""
    made, conf = app.throttle, app.conf
    defaults = DEFAULTS | (DEFAULTS_OF_THE_TAKE if made.gate == "take" else {})
    for name, value in defaults.items():
        if not _chosen(conf, name) and conf[name] != value:
            conf[name] = value
            made.changed.append(name)
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


def check(app: Any) -> None:
    """Refuse an app whose configuration would lose tasks; raises `ConfigurationError`."""
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
    return str(conf.broker_write_url or "")


def _transport(conf: Any) -> str:
    scheme = _url(conf).partition(":")[0]
    return {"sentinel": "SentinelTransport", "rediss": "TLSTransport"}.get(scheme, "Transport")
