"""Checkpoints in etcd v3.4 or newer, over its JSON gateway: two keys for each task, both on one lease.

=====================================  =============================================================================
key                                    holds
=====================================  =============================================================================
`<ns>task:<id>:checkpoint`             a line of JSON (task, status, progress), then the content as it is
`<ns>task:<id>:checkpoint:fence`       the fence that was given out last
=====================================  =============================================================================

OPEN reads both and writes both in a transaction that holds only if neither changed meanwhile, else it is done again.
SAVE renews the lease, then writes in a transaction that holds only while the fence is the run's own; so an answer that
was lost is simply asked for again. CLEAR deletes under the same condition. A crash between the renewal and the write
leaves the older content for another time to live, and one after CLEAR a lease without keys, which runs off by itself.

Age: what has run off the lease since the last renewal, in whole seconds (see the package). The names of keys are those
that the fleet has in Redis, so that several fleets may share one etcd.
"""

from __future__ import annotations

import base64
import contextlib
import json
from typing import TYPE_CHECKING, Any, cast

import requests

from tasks.checkpoints.protocol import (
    Gone,
    Listed,
    Saved,
    Status,
    StoreAway,
    Superseded,
    checked_id,
    read_progress,
    read_status,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from throttle.keys import Keys

ANSWER_S = 5.0
"""How long an answer is waited for, from each address."""
TRIES = 20
"""Of OPEN, when others open the same checkpoint at the same time."""
FENCE = ":fence"
FAILURES = (requests.RequestException, ValueError)
"""All that a gateway, or a proxy in its place, can do wrong."""


class EtcdStore:
    """See `CheckpointStore`. `addresses` are those of the members of one cluster; who answers is asked on."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        keys: Keys,
        ttl_s: float,
        *,
        tls: bool = False,
        ca: str | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        """Nothing is sent yet. `ca`: file with the certificates to trust, instead of the usual ones."""
        self.keys = keys
        self.ttl_s = max(1, round(ttl_s))
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy for the web is none for a cluster's own store
        self._session.verify = ca or True
        self._answer_s = answer_s
        self._members = [
            f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/v3/"
            for host, port in addresses
        ]

    def open(self, task_id: str, task: str) -> EtcdSlot:
        """Three round trips, two more for each other run that opens at the same moment."""
        identity = checked_id(task_id)
        key = self.keys.checkpoint(identity)
        for _ in range(TRIES):
            answer = self.txn([], [{"request_range": {"key": b64(key)}}, {"request_range": {"key": b64(key + FENCE)}}])
            content, stored = (_first(part["response_range"]) for part in answer["responses"])
            fence = max(int(answer["header"]["revision"]), _number(stored)) + 1
            lease, mine = self._lease(stored)
            found = None if content is None or stored is None else read_value(content["value"])
            value = write_value(task, "running", found.progress if found else 0.0, found.context if found else b"")
            unchanged = [_same_revision(key, content), _same_revision(key + FENCE, stored)]
            puts = [put(key, value, lease), put(key + FENCE, str(fence).encode(), lease)]
            if self.txn(unchanged, puts).get("succeeded"):
                return EtcdSlot(self, key, identity=identity, task=task, fence=fence, lease=lease, found=found)
            if mine:
                self.drop(lease)
        message = f"etcd: the checkpoint of task {identity} changed {TRIES} times while it was opened"
        raise StoreAway(message)

    def list(self) -> Iterator[Listed]:
        """One round trip, and one for each checkpoint: its lease knows the age."""
        prefix = self.keys.namespace() + "task:"
        ending = ":checkpoint"
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        answer = self.ask("kv/range", {"key": b64(prefix), "range_end": b64(end)})
        for entry in answer.get("kvs", []):
            name = base64.b64decode(entry["key"]).decode(errors="replace")
            if not name.endswith(ending):
                continue
            raw = base64.b64decode(entry.get("value", ""))
            saved = read_value(entry.get("value", ""))
            left = self.ask("lease/timetolive", {"ID": entry.get("lease", "0")})
            age_s = max(0.0, float(left.get("grantedTTL", 0)) - float(left.get("TTL", 0)))
            identity = name.removeprefix(prefix).removesuffix(ending)
            yield Listed(identity, task_of(raw), saved.status, saved.progress, age_s, len(saved.context))

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def txn(self, compare: list[dict[str, Any]], success: list[dict[str, Any]]) -> dict[str, Any]:
        """A transaction; `succeeded` is missing from the answer when the comparison does not hold."""
        return self.ask("kv/txn", {"compare": compare, "success": success})

    def ask(self, path: str, question: dict[str, Any]) -> dict[str, Any]:
        """The first answer that any address gives. Raises `StoreAway` with what the last one said."""
        failure: Exception | None = None
        for member in tuple(self._members):
            try:
                answer = self._session.post(member + path, json=question, timeout=self._answer_s, allow_redirects=False)
                told: object = answer.json()
                if isinstance(told, dict):
                    if answer.status_code == requests.codes.ok:
                        return cast("dict[str, Any]", told)
                    failure = ValueError(str(cast("dict[str, Any]", told).get("error", answer.reason)))
                else:
                    failure = ValueError("this is no etcd")
            except FAILURES as error:
                failure = error
            self._members = [other for other in self._members if other is not member] + [member]
        raise StoreAway(f"etcd: {_said(failure)}") from None

    def renew(self, lease: str) -> bool:
        """Give a lease its whole time to live again. False: it has run off."""
        answer = self.ask("lease/keepalive", {"ID": lease})
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    def drop(self, lease: str) -> None:
        """End a lease, if etcd answers; otherwise it runs off."""
        with contextlib.suppress(StoreAway):
            self.ask("lease/revoke", {"ID": lease})

    def _lease(self, stored: dict[str, Any] | None) -> tuple[str, bool]:
        """The lease of what is stored, renewed, or a new one; and whether it is new."""
        lease = str((stored or {}).get("lease", "0"))
        if lease != "0" and self.renew(lease):
            return lease, False
        return str(self.ask("lease/grant", {"TTL": self.ttl_s, "ID": 0})["ID"]), True


class EtcdSlot:
    """See `Slot`."""

    def __init__(
        self, store: EtcdStore, key: str, *, identity: str, task: str, fence: int, lease: str, found: Saved | None
    ) -> None:
        """Made by `EtcdStore.open`."""
        self.fence = fence
        self.found = found
        self._store, self._key, self._lease = store, key, lease
        self._identity, self._task = identity, task
        self._mine = [
            {"key": b64(key + FENCE), "target": "VALUE", "result": "EQUAL", "value": b64(str(fence).encode())}
        ]

    def save(self, status: Status, progress: float, context: bytes) -> None:
        """Two round trips."""
        kept = self._store.renew(self._lease)
        if kept:
            value = write_value(self._task, status, progress, context)
            if self._store.txn(self._mine, [put(self._key, value, self._lease)]).get("succeeded"):
                return
            answer = self._store.ask("kv/range", {"key": b64(self._key + FENCE), "count_only": True})
            kept = int(answer.get("count", 0)) > 0
        if kept:
            message = f"another run of task {self._identity} has opened its checkpoint"
            raise Superseded(message)
        message = f"the checkpoint of task {self._identity} is gone"
        raise Gone(message)

    def clear(self) -> bool:
        """Two round trips."""
        both = [{"request_delete_range": {"key": b64(key)}} for key in (self._key, self._key + FENCE)]
        if not self._store.txn(self._mine, both).get("succeeded"):
            return False
        self._store.drop(self._lease)
        return True


def b64(text: str | bytes) -> str:
    """Text or bytes as the gateway wants them."""
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def put(key: str, value: bytes, lease: str) -> dict[str, Any]:
    """A write in a transaction."""
    return {"request_put": {"key": b64(key), "value": b64(value), "lease": lease}}


def write_value(task: str, status: Status, progress: float, context: bytes) -> bytes:
    """What stands under a checkpoint's key."""
    head = {"task": task, "status": status, "progress": progress}
    return json.dumps(head).encode() + b"\n" + context


def read_value(encoded: str) -> Saved:
    """What stands under a checkpoint's key. Of what nobody here has written all of it, for others to refuse."""
    head, _, context = base64.b64decode(encoded).partition(b"\n")
    known = _json(head)
    progress = known.get("progress", 0.0)
    return Saved(
        read_status(str(known.get("status", ""))),
        read_progress(progress if isinstance(progress, (int, float)) else 0.0),
        0,
        context if known else head + b"\n" + context,
    )


def task_of(value: bytes) -> str:
    """The name of the task in a value."""
    return str(_json(value.partition(b"\n")[0]).get("task", ""))


def _json(text: bytes) -> dict[str, Any]:
    try:
        known: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", known) if isinstance(known, dict) else {}


def _first(answer: dict[str, Any]) -> dict[str, Any] | None:
    entries: list[dict[str, Any]] = answer.get("kvs", [])
    return {"value": "", **entries[0]} if entries else None


def _number(stored: dict[str, Any] | None) -> int:
    text = base64.b64decode(stored["value"]) if stored else b""
    return int(text) if text.isdigit() else 0


def _same_revision(key: str, entry: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "key": b64(key),
        "target": "MOD",
        "result": "EQUAL",
        "mod_revision": entry["mod_revision"] if entry else "0",
    }


def _said(error: Exception | None) -> str:
    """One line of what went wrong."""
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.JSONDecodeError):
        return "the answer is not from an etcd"
    return str(error).partition("\n")[0][:200]
