"""Celery tasks that go on where they were: `Resumable`, the base of tasks with a checkpoint (see `tasks.checkpoints`).

    @shared_task(base=Resumable, bind=True)
    def index(self, path):
        with self.checkpoint() as cp:
            saved = cp.load() or {"line": 0}
            for number, line in lines_after(path, saved["line"]):
                put_into_the_index(line)
                cp.note(progress=..., line=number)

A checkpoint belongs to the task's id, so a redelivery, a retry and a dead letter that is sent again go on with it. It
is cleared when the task has succeeded, before its message is acknowledged: a pod that dies in between (milliseconds)
leaves a task that is done a second time, from the start. A task that is called directly or eagerly keeps none.
"""
# pyright: basic

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import redis
from billiard.exceptions import SoftTimeLimitExceeded
from celery import Task
from celery.exceptions import Ignore, Reject, Retry
from celery.signals import celeryd_init
from kombu.exceptions import KombuError

from tasks.checkpoints import Checkpoint, Limits, StoreAway, Superseded
from tasks.checkpoints.choosing import make_store
from tasks.checkpoints.run import PATIENCE_S, Surroundings
from throttle.errors import HeadroomError
from throttle.worker import attempts, ownership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tasks.checkpoints import CheckpointStore, Listed, Slot, Status

logger = logging.getLogger(__name__)

REPORT_EVERY_S = 0.5
SILENT_S = 30.0
"""Progress is not shown for so long after it could not be."""
AWAY = (redis.RedisError, KombuError, OSError, HeadroomError)
STOPS = (Retry, SoftTimeLimitExceeded, Ignore, Reject)
"""What ends a run that will be run again, or that says so itself."""

_stores: dict[tuple[int, int], CheckpointStore] = {}
_stores_lock = threading.Lock()
_events = threading.Event()
"""Set in a worker that was started with `--events`."""


class Ghost(Superseded, Ignore):
    """Ends a run that is not the rightful one: no result, and an acknowledgement without effect."""


class Resumable(Task):
    """Base class of tasks that keep a checkpoint."""

    abstract = True
    checkpoint_version = 1
    """Of what the context means. Raise it when older ones must not be gone on from."""
    compensate: Callable[[str], object] | None = None
    """Called, with the reason, before a task starts anew whose checkpoint has expired or is of no use: undoes what a
    run may have left half done, and must do no harm where there is nothing. What it raises ends the task."""

    def checkpoint(self, *, settle: Callable[[], object] | None = None, required: bool = False) -> Checkpoint:
        """This run's checkpoint, for a `with` around the work; see `tasks.checkpoints.Checkpoint`.

        Args:
            settle: called before each save, to make durable what the save speaks of (an fsync, a commit).
            required: raise `StoreAway` when the checkpoint cannot be read or saved, instead of going on without.
        """
        request, conf = self.request, self.app.conf
        away = request.called_directly or request.is_eager or not request.id
        made = Checkpoint(
            None if away else FleetStore(self.app),
            Surroundings(
                task_id=str(request.id),
                task=str(self.name),
                version=self.checkpoint_version,
                delivered_before=bool(request.retries or (request.delivery_info or {}).get("redelivered")),
                rightful=self._is_rightful,
                compensate=self.compensate,
                report=Reporter(self) if not away else lambda _progress, _shown: None,
                settle=settle or (lambda: None),
                status_of=self._status_of,
                ghost=Ghost,
            ),
            Limits(
                every_s=conf.get("headroom_checkpoint_every_s") or Limits().every_s,
                max_bytes=conf.get("headroom_checkpoint_max_bytes") or Limits().max_bytes,
                patience_s=PATIENCE_S,
            ),
            required=required,
        )
        request.headroom_checkpoint = made
        return made

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Clear the checkpoint: one round trip (etcd: two)."""
        made = vars(self.request).pop("headroom_checkpoint", None)
        if made is not None:
            made.finish()
        return super().on_success(retval, task_id, args, kwargs)

    def _is_rightful(self) -> bool | None:
        """Whether the fleet still counts the take as this pod's. A permit of the other gate does not tell."""
        if "take" not in ownership.mark(self):
            return None
        try:
            return ownership.still_mine(self)
        except AWAY:
            return None

    def _status_of(self, error: BaseException) -> Status:
        """Whether a run that ends with this error will be run again by itself."""
        again = isinstance(error, STOPS) or attempts.kind(self, type(error)) == "temporary"
        return "stopped" if again else "failed"


class FleetStore:
    """The store that an app's settings name, made in the process that uses it, when it is used."""

    def __init__(self, app: Any) -> None:
        """Nothing is sent."""
        self._app = app

    def open(self, task_id: str, task: str) -> Slot:
        """See `CheckpointStore`."""
        return self._store().open(task_id, task)

    def list(self) -> Iterator[Listed]:
        """See `CheckpointStore`."""
        return self._store().list()

    def close(self) -> None:
        """Forget the store of this process."""
        with _stores_lock:
            found = _stores.pop((os.getpid(), id(self._app)), None)
        if found is not None:
            found.close()

    def _store(self) -> CheckpointStore:
        place = (os.getpid(), id(self._app))
        with _stores_lock:
            found = _stores.get(place)
        if found is None:
            found = self._made()
            with _stores_lock:
                found = _stores.setdefault(place, found)
        return found

    def _made(self) -> CheckpointStore:
        app, conf = self._app, self._app.conf
        if getattr(app, "throttle", None) is None:
            message = "this app has no fleet, and checkpoints are kept beside one: call throttle.install(app)"
            raise StoreAway(message)
        try:
            return make_store(
                conf.get("headroom_checkpoint_store") or "redis",
                lambda: ownership.operations(app),
                fleet=app.throttle.settings.fleet,
                ttl_s=conf.get("headroom_checkpoint_ttl_s") or 604800,
                ca=conf.get("headroom_checkpoint_ca"),
            )
        except AWAY as error:
            raise StoreAway(str(error).partition("\n")[0]) from None


class Reporter:
    """Shows progress in the task's state (`PROGRESS`) and to Flower, seldom enough to cost nothing."""

    def __init__(self, task: Task) -> None:
        """The first half second is not shown."""
        self._task = task
        self._next_s = time.monotonic() + REPORT_EVERY_S

    def __call__(self, progress: float, shown: dict[str, Any]) -> None:
        """Show. A result back end or a broker that is away costs its time limit, once in a while, and no task."""
        if time.monotonic() < self._next_s:
            return
        pause_s = REPORT_EVERY_S
        task = self._task
        try:
            if not (task.ignore_result or task.request.ignore_result):
                task.update_state(state="PROGRESS", meta={"progress": progress, **shown})
            if _events.is_set():
                task.send_event("task-progress", retry=False, progress=progress, result=f"{100 * progress:.1f} %")
        except SoftTimeLimitExceeded:
            raise
        except Exception as error:  # noqa: BLE001 - whatever back end an app has, its failure is not the task's
            logger.warning("the progress of task %s cannot be shown: %r", task.request.id, error)
            pause_s = SILENT_S
        self._next_s = time.monotonic() + pause_s


@celeryd_init.connect
def _on_celeryd_init(conf: Any = None, options: dict[str, Any] | None = None, **_: Any) -> None:
    """Remember whether this worker sends events; the children of a pool are forked later."""
    if (options or {}).get("task_events") or getattr(conf, "worker_send_task_events", False):
        _events.set()
