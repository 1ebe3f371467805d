"""Who is over, by another witness than Redis: the rule by which what Kubernetes says is added to the heartbeats. Pure.

Redis alone gives a member up when it has been silent for a TTL, and that stays the truth: no word of Kubernetes makes a
lease shorter for a pod that may still run, and none makes a silent pod live. Two things are added.

- A pod that is *over* is given up at once: anybody may then LEAVE in its name. Over means that nothing of it can run
  any more: it has ended or is being deleted, so that no container of it is started again, and its kubelet has reported
  the end of each one. It does not mean
  - a pod that is not in the list: one that was deleted by force may run on, on a node that nobody can reach;
  - the phase Failed alone: a pod of a lost node gets it from the control plane, which has not seen it end;
  - a container that ended in a pod that goes on: the next one may have started and the report of it be late. The next
    incarnation takes over from the one before by itself when it joins;
  - an end that the kubelet only infers (ContainerStatusUnknown).
- A pod that is not ready gets no new shards. What it holds it keeps. Where none is ready, that says something of the
  cluster and nothing of a pod, and is left aside.

A pod of a StatefulSet has the name of the one before. So the word counts for a member only when the reading was *asked
for* after the member was first seen, and the server answered with its newest state: a pod exists there before it runs,
so a list that still has the old pod was made before any member of the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from throttle.errors import HeadroomError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tasks.shards.answers import View

UNSEEN = "ContainerStatusUnknown"


class PodSeen(NamedTuple):
    """One pod as Kubernetes tells of it."""

    name: str
    ready: bool
    over: bool


class Reading(NamedTuple):
    """One look at the pods."""

    asked_s: float
    """Monotonic seconds, before the request was sent."""
    pods: Mapping[str, PodSeen]


class Merged(NamedTuple):
    """What follows from heartbeats and reading together."""

    view: View
    """The view with those that get no new shards marked as draining."""
    over: tuple[str, ...]
    """Members that ended for certain: LEAVE in their names."""


class Liveness(Protocol):
    """A witness beside the heartbeats."""

    async def read(self) -> Reading | None:
        """The newest reading; None when there is none. Never raises but for cancellation, never waits for long."""
        ...

    async def close(self) -> None:
        """Let connections go."""
        ...


class ByHeartbeat:
    """No other witness than Redis."""

    async def read(self) -> Reading | None:
        """None."""
        return None

    async def close(self) -> None:
        """Nothing to do."""


class FirstSeen:
    """When each member of the views was first seen; forgets those that are gone."""

    def __init__(self) -> None:
        """Nobody yet."""
        self._at_s: dict[str, float] = {}

    def note(self, members: Iterable[str], now_s: float) -> Mapping[str, float]:
        """Member -> when it was first seen; `now_s` for those that are new."""
        self._at_s = {name: self._at_s.get(name, now_s) for name in members}
        return self._at_s


def merge(view: View, reading: Reading | None, first_seen_s: Mapping[str, float]) -> Merged:
    """Add a reading to a view. Without one, and for pods that it does not name, the view stays as it is."""
    if reading is None:
        return Merged(view, ())
    seen: dict[str, PodSeen] = {}
    for member in view.members:
        pod = reading.pods.get(member.name.rpartition("#")[0])
        if pod is not None and reading.asked_s > first_seen_s.get(member.name, reading.asked_s):
            seen[member.name] = pod
    over = {name for name, pod in seen.items() if pod.over}
    aside = {name for name, pod in seen.items() if not pod.ready} - over
    if all(member.draining or member.name in over | aside for member in view.members):
        aside = set[str]()
    members = tuple(
        member._replace(draining=True) if member.name in over | aside else member for member in view.members
    )
    return Merged(view._replace(members=members), tuple(sorted(over)))


# ---------------------------------------------------------------- what the API answers


class UnreadableError(HeadroomError):
    """An answer of the API is not a list of pods."""


def read_pods(answer: object) -> dict[str, PodSeen]:
    """The pods of a `PodList`. Raises `UnreadableError`; one pod that cannot be read is left out."""
    found = _object(answer)
    items = found.get("items")
    if found.get("kind") != "PodList" or not isinstance(items, list):
        raise UnreadableError("the answer is no list of pods")
    pods = [read_pod(item) for item in cast("list[object]", items)]
    return {pod.name: pod for pod in pods if pod is not None}


def read_pod(item: object) -> PodSeen | None:
    """One pod; None when it has no name."""
    pod = _object(item)
    metadata, spec, status = (_object(pod.get(part)) for part in ("metadata", "spec", "status"))
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        return None
    conditions = [_object(condition) for condition in _list(status.get("conditions"))]
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    leaving = metadata.get("deletionTimestamp") is not None
    last = leaving or status.get("phase") in ("Succeeded", "Failed")
    return PodSeen(name, ready and not leaving, bool(last and _all_ended(spec, status)))


def _all_ended(spec: dict[str, Any], status: dict[str, Any]) -> bool:
    """Whether the kubelet saw each container of the pod end."""
    declared = {_object(container).get("name") for container in _list(spec.get("containers"))}
    states = {
        container.get("name"): _object(_object(container.get("state")).get("terminated"))
        for container in map(_object, _list(status.get("containerStatuses")))
    }
    return bool(declared) and all(
        (ended := states.get(name)) and ended.get("finishedAt") and ended.get("reason") != UNSEEN for name in declared
    )


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
