# pyright: basic
"""Every name of Celery, kombu and redis-py that the worker side stands on and that nobody promises to keep.

One list for each gate, with the reason for each name. `choose` runs at `install`: where one has moved that the take
needs, or the versions are newer than those that were tried, the requeue gate is used instead; a gate that was asked for
is refused, with a line that names what has moved. `tests/worker/test_internals.py` fails on the same day, and asserts
what a name alone cannot tell.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any, NamedTuple

import celery
import kombu

from throttle.errors import ConfigurationError

OLDEST = TRIED = (5, 7)
GATES = ("take", "requeue")


class Internal(NamedTuple):
    """One name, where it lives, what it must look like and what we do with it."""

    module: str
    name: str
    parameters: tuple[str, ...] | None
    """Of a function that we replace or call; None for what is no function."""
    why: str


TAKE = (
    # kombu: the channel
    Internal("kombu.transport.redis", "Channel._brpop_start", ("self", "timeout"), "replaced: sends TAKE"),
    Internal("kombu.transport.redis", "Channel._brpop_read", ("self", "options"), "replaced: reads TAKE or the bell"),
    Internal("kombu.transport.redis", "Channel._put", ("self", "queue", "message", "kwargs"), "replaced: PUT"),
    Internal("kombu.transport.redis", "Channel._deliver_fanout_message", ("self", "message", "exchange"), "extended"),
    Internal("kombu.transport.redis", "Channel._update_queue_cycle", ("self",), "extended: the queues have changed"),
    Internal("kombu.transport.redis", "Channel._q_for_pri", ("self", "queue", "pri"), "called: key of a queue"),
    Internal(
        "kombu.transport.redis",
        "Channel._queue_bind",
        ("self", "exchange", "routing_key", "pattern", "queue"),
        "extended: a full Redis refuses it",
    ),
    Internal("kombu.transport.redis", "Channel._size", ("self", "queue"), "replaced: likewise"),
    Internal(
        "kombu.transport.redis",
        "Channel._delete",
        ("self", "queue", "exchange", "routing_key", "pattern", "args", "kwargs"),
        "extended: likewise",
    ),
    Internal("kombu.transport.redis", "Channel._refresh_binding", None, "replaced: BIND, called with keys and args"),
    Internal("kombu.transport.redis", "REFRESH_BINDING", None, "called: for who may not use BIND"),
    Internal("kombu.transport.redis", "Channel.maybe_refresh_binding_expiry", ("self",), "extended: likewise"),
    Internal("kombu.transport.redis", "Channel.connection_class", None, "replaced: gives up a replica"),
    Internal("kombu.transport.redis", "Channel.connection_class_ssl", None, "replaced: likewise"),
    Internal("kombu.transport.redis", "Channel._flush_brpop_reauth", ("self",), "called when the connection is idle"),
    Internal("kombu.transport.redis", "Channel._in_poll", None, "set: the connection awaits an answer"),
    Internal("kombu.transport.redis", "Channel._brpop_sent_at", None, "set: kombu drops a connection that is overdue"),
    Internal("kombu.transport.redis", "Channel.from_transport_options", None, "extended: carries the fleet"),
    Internal("kombu.transport.redis", "SentinelChannel", None, "subclassed"),
    Internal("kombu.transport.virtual.base", "Channel._get_message_priority", ("self", "message", "reverse"), "called"),
    Internal("kombu.transport.virtual.base", "Channel.do_restore", None, "set: kombu restores nothing of its own"),
    Internal("kombu.transport.virtual.base", "Transport._deliver", ("self", "message", "queue"), "called"),
    Internal("kombu.transport.virtual.base", "Transport._callbacks", None, "read: the queues that are consumed"),
    Internal("kombu.connection", "Connection.resolve_aliases", None, "extended: the address as it was configured"),
    Internal(
        "kombu.connection",
        "Connection._init_params",
        (
            "self",
            "hostname",
            "userid",
            "password",
            "virtual_host",
            "port",
            "insist",
            "ssl",
            "transport",
            "connect_timeout",
            "login_method",
            "heartbeat",
            "credential_provider",
        ),
        "extended: each address of the broker is ours",
    ),
    Internal("celery.app.amqp", "AMQP.Connection", None, "replaced by ours"),
    # kombu, the credit it gives
    Internal("kombu.transport.virtual.base", "QoS.can_consume", ("self",), "extended: answers are always read"),
    Internal("kombu.transport.virtual.base", "QoS.append", ("self", "message", "delivery_tag"), "called: count only"),
    Internal("kombu.transport.virtual.base", "QoS.ack", ("self", "delivery_tag"), "called: forget only"),
    Internal("kombu.transport.virtual.base", "QoS._delivered", None, "read: what is counted"),
    Internal("kombu.transport.redis", "QoS.reject", ("self", "delivery_tag", "requeue"), "replaced"),
    Internal("kombu.transport.redis", "QoS.restore_visible", ("self", "start", "num", "interval"), "replaced"),
    Internal("kombu.transport.redis", "QoS.restore_unacked", ("self", "client"), "replaced"),
    # kombu: the poller and the hub
    Internal("kombu.transport.redis", "MultiChannelPoller._update_brpop_polling", ("self",), "relies on can_consume"),
    # Celery: the consumer
    Internal("celery.worker.consumer.consumer", "Consumer.call_soon_ack", ("self", "p", "args", "kwargs"), "replaced"),
    Internal("celery.worker.consumer.consumer", "Consumer.on_unknown_message", ("self", "body", "message"), "wrapped"),
    Internal(
        "celery.worker.consumer.consumer", "Consumer.on_unknown_task", ("self", "body", "message", "exc"), "wrapped"
    ),
    Internal(
        "celery.worker.consumer.consumer", "Consumer.on_invalid_task", ("self", "body", "message", "exc"), "wrapped"
    ),
    Internal("celery.worker.consumer.consumer", "Consumer.on_decode_error", ("self", "message", "exc"), "wrapped"),
    Internal("celery.concurrency.asynpool", "AsynPool.flush", ("self",), "drops what no child has accepted"),
    # Celery, the request
    Internal("celery.worker.request", "Request._eta", None, "cleared once due: Redis has kept the message"),
)
"""Of `gate="take"`."""

SHARED = (
    # a drain
    Internal(
        "billiard.pool",
        "soft_timeout_sighandler",
        ("signum", "frame"),
        "replaced: SIGUSR1 tells a drain's deadline too",
    ),
    Internal("celery.apps.worker", "REMAP_SIGTERM", None, "read: whether SIGTERM is a cold shutdown"),
    Internal("celery.app.task", "Task.run", None, "wrapped: a deadline is raised in a task's own code alone"),
    Internal("celery.worker.request", "Request.worker_pid", None, "read: the child to be told"),
    Internal("celery.worker.state", "requests", None, "read: requests that wait for their time"),
    Internal("kombu.transport.redis", "Channel.pool", None, "read: connections with all of the broker's options"),
    Internal("kombu.transport.redis", "Channel.brpop_timeout", None, "read: how long an answer may take"),
    Internal(
        "kombu.connection",
        "Connection.ensure_connection",
        ("self", "args", "kwargs"),
        "extended: even pauses",
    ),
    Internal(
        "celery.worker.consumer.consumer", "Consumer.connect", ("self",), "wrapped: waits for a Redis that takes writes"
    ),
    Internal("kombu.transport.redis", "MultiChannelPoller.on_poll_start", ("self",), "wrapped on gevent"),
    Internal("kombu.asynchronous.hub", "Hub.call_soon", ("self", "callback", "args"), "called: wakes the loop"),
    Internal("celery.worker.consumer.consumer", "Consumer.Blueprint", None, "state RUN in stop: a lost connection"),
    Internal("celery.worker.consumer.events", "Events", None, "makes event_dispatcher"),
    Internal("celery.events.dispatcher", "EventDispatcher.send", None, "wrapped: an event is tried once"),
    Internal("celery.bootsteps", "Blueprint.on_close", None, "wrapped: the worker ends"),
    Internal("kombu.asynchronous.hub", "Hub.create_loop", None, "called: lets children accept at the shutdown"),
    Internal(
        "celery.concurrency.base",
        "BasePool.on_apply",
        ("self", "args", "kwargs"),
        "wrapped where tasks run in this process: none ends it",
    ),
    Internal(
        "celery.concurrency.asynpool",
        "ResultHandler._recv_message",
        ("self", "add_reader", "fd", "callback", "__read__", "readcanbuf", "BytesIO", "unpack_from", "load"),
        "called: reads one answer of a child",
    ),
    Internal(
        "celery.concurrency.asynpool", "ResultHandler._make_process_result", ("self", "hub"), "replaced: in pieces"
    ),
    Internal(
        "celery.concurrency.asynpool",
        "ResultHandler._finish_partial_read",
        ("self", "fd", "proc"),
        "extended: likewise, at the shutdown",
    ),
    Internal("celery.app.base", "Celery.send_task", None, "wrapped: a deadline"),
    Internal("celery.app.base", "Celery._get_backend", ("self",), "wrapped: no subscription before somebody waits"),
    Internal("celery.backends.redis", "RedisBackend.on_task_call", ("self", "producer", "task_id"), "replaced: none"),
    Internal("redis.connection", "Connection._connect", ("self",), "wrapped: a deadline"),
    Internal("redis.connection", "AbstractConnection._send_ping", ("self",), "wrapped: likewise"),
    Internal("redis.connection", "AbstractConnection._sock", None, "its time limit is set for an answer"),
    Internal(
        "celery.concurrency.asynpool",
        "AsynPool._track_child_process",
        ("self", "proc", "hub"),
        "wrapped: of the living",
    ),
    Internal("celery.concurrency.asynpool", "gen_not_started", ("gen",), "called: what is half written"),
    Internal("celery.worker.consumer.consumer", "Consumer.on_close", ("self",), "wrapped: the connection is lost"),
    Internal("billiard.pool", "Pool._cache", None, "read: what the children have"),
    Internal("billiard.pool", "ApplyResult._accepted", None, "read"),
    Internal("celery.worker.state", "reserved_requests", None, "read: what the pool has to do"),
    Internal("celery.worker.state", "should_stop", None, "set: ends the worker"),
    Internal("celery.worker.state", "should_terminate", None, "read: a cold shutdown"),
    Internal("celery.worker.request", "Request.on_accepted", ("self", "pid", "time_accepted"), "wrapped: it runs"),
    Internal("celery.worker.request", "Request.on_success", ("self", "failed__retval__runtime", "kwargs"), "wrapped"),
    Internal(
        "celery.worker.request", "Request.on_failure", ("self", "exc_info", "send_failed_event", "return_ok"), "wrapped"
    ),
    Internal("celery.worker.request", "Request.on_timeout", ("self", "soft", "timeout"), "wrapped: a crash"),
    Internal("celery.worker.request", "Request._apply_result", None, "read: the pool has it"),
    Internal("celery.worker.request", "Request.time_limits", None, "set: the limits of its queue"),
    Internal("celery.app.autoretry", "add_autoretry_behaviour", ("task", "options"), "stands aside: `task._orig_run`"),
    Internal("celery.worker.pidbox", "gPidbox.loop", ("self", "c"), "replaced: remote control connects anew"),
    Internal("celery.worker.pidbox", "gPidbox._do_reset", ("self", "c", "connection"), "called: listens"),
    Internal("celery.worker.pidbox", "gPidbox._node_stopped", None, "set: awaited by whoever ends it"),
    Internal("kombu.transport.redis", "MultiChannelPoller.maybe_check_subclient_health", ("self",), "called: PING"),
    Internal("celery.app.amqp", "AMQP.send_task_message", None, "wrapped in a worker: where retries go"),
)
"""Of both gates."""

REQUEUE = (
    Internal("kombu.transport.redis", "Channel._queue_cycle", None, "replaced: which queues are fetched next"),
    Internal("kombu.transport.redis", "Channel._in_poll", None, "read: an answer is under way"),
    Internal("kombu.transport.redis", "Channel._q_for_pri", None, "called: key of a queue"),
    Internal("kombu.transport.redis", "QoS.can_consume", None, "replaced: answers are always read"),
    Internal("kombu.transport.virtual.base", "QoS._delivered", None, "read: what is not acknowledged"),
    Internal("kombu.transport.virtual.base", "QoS._dirty", None, "read: what is acknowledged of it"),
    Internal("kombu.transport.redis", "QoS.append", ("self", "message", "delivery_tag"), "wrapped: kept if not filed"),
    Internal("kombu.transport.redis", "Channel._do_restore_message", None, "called: back to the head"),
    Internal("kombu.transport.virtual.base", "QoS.restore_unacked_once", ("self", "stderr"), "wrapped: at the end"),
    Internal("celery.worker.consumer.consumer", "Consumer.on_close", ("self",), "wrapped: the connection is lost"),
    Internal("kombu.utils.limits", "TokenBucket.clear_pending", ("self",), "as it does: what waits for a rate limit"),
    Internal("kombu.transport.redis", "QoS.ack", ("self", "delivery_tag"), "extended: repeated where Redis was away"),
    Internal("kombu.transport.redis", "QoS._remove_from_indices", None, "called: likewise"),
    Internal("celery.worker.consumer.consumer", "Consumer.on_task_request", None, "replaced: the gate"),
    Internal("celery.worker.state", "active_requests", None, "read: what runs"),
    Internal("celery.worker.state", "task_ready", None, "called: Celery forgets a request"),
    Internal("celery.worker.request", "Request.acknowledged", None, "set: nothing acknowledges it"),
    Internal("celery.worker.request", "Request.request_dict", None, "its properties carry the permit"),
)
"""Of `gate="requeue"`."""

BEAT = (
    Internal("kombu.transport.redis", "Channel._put", ("self", "queue", "message", "kwargs"), "replaced: kept"),
    Internal(
        "kombu.transport.redis",
        "Channel._put_fanout",
        ("self", "exchange", "message", "routing_key", "kwargs"),
        "replaced: kept",
    ),
    Internal("kombu.transport.redis", "Channel._get_publish_topics", ("self", "exchange", "routing_key"), "called"),
    Internal("kombu.transport.redis", "Channel._q_for_pri", ("self", "queue", "pri"), "called: key of a queue"),
    Internal("kombu.transport.virtual.base", "Channel._get_message_priority", ("self", "message", "reverse"), "called"),
    Internal("kombu.connection", "Connection.get_transport_cls", ("self",), "wrapped: a channel that keeps messages"),
    Internal("celery.beat", "Scheduler.setup_schedule", ("self",), "replaced: no file"),
    Internal("celery.beat", "Scheduler.tick", None, "replaced: one turn of ours"),
    Internal("celery.beat", "Scheduler.close", ("self",), "extended: makes room for another beat"),
    Internal("celery.beat", "_evaluate_entry_args", ("entry_args",), "called: arguments that are made at the run"),
    Internal("celery.beat", "_evaluate_entry_kwargs", ("entry_kwargs",), "called: likewise"),
)
"""Of the scheduler. Where one has moved, an app keeps Celery's, of which only one may run."""

INTERNALS = {"take": (*TAKE, *SHARED), "requeue": (*REQUEUE, *SHARED), "beat": BEAT}


def find(internal: Internal) -> Any:
    """The thing itself; AttributeError or ImportError when it has moved."""
    found: Any = import_module(internal.module)
    for part in internal.name.split("."):
        if part in getattr(found, "__annotations__", {}) or _set_in_init(found, part):
            return None
        found = getattr(found, part)
    return found


def moved(gate: str = "take") -> list[str]:
    """What is not where it was, of all that a gate stands on, in words."""
    faults: list[str] = []
    for internal in INTERNALS[gate]:
        where = f"{internal.module}.{internal.name}"
        try:
            found = find(internal)
        except (ImportError, AttributeError):
            faults.append(f"{where} is gone")
            continue
        if internal.parameters is not None:
            parameters = tuple(inspect.signature(found).parameters)
            if parameters != internal.parameters:
                faults.append(f"{where} has the parameters {', '.join(parameters)}")
    return faults


def choose(gate: str | None) -> tuple[str, str]:
    """The gate to use, and what speaks against the take where it was nobody's wish to do without ('' otherwise).

    None is no wish: the take where it fits. Raises `ConfigurationError`, one line, when neither fits, the one that was
    asked for does not, or Celery or kombu is too old.
    """
    packages = (celery, kombu)
    for package in packages:
        if package.VERSION[:2] < OLDEST:
            message = f"{package.__name__} {package.__version__} is too old; allowed is 5.7 or newer"
            raise ConfigurationError(message)
    if gate is None:
        against = [f"{p.__name__} {p.__version__} is newer than 5.7" for p in packages if p.VERSION[:2] > TRIED]
        against = moved("take") or against
        if not against:
            return "take", ""
        _refuse_moved("requeue")
        return "requeue", against[0]
    _refuse_moved(gate)
    return gate, ""


def _refuse_moved(gate: str) -> None:
    if faults := moved(gate):
        message = (
            f'gate="{gate}" does not fit celery {celery.__version__} with kombu {kombu.__version__}: {faults[0]}; '
            "allowed are versions that it was tried with (celery 5.7, kombu 5.7)"
        )
        raise ConfigurationError(message)


def _set_in_init(owner: Any, name: str) -> bool:
    """Whether instances get this attribute, which the class itself does not have."""
    return (
        inspect.isclass(owner) and not hasattr(owner, name) and f"self.{name} = " in inspect.getsource(owner.__init__)
    )
