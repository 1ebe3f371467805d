"""What Kubernetes may say about who is over: shapes as its API answers them, and a client over a real connection."""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from app.local.servers import free_port
from app.shards.commands import Reached
from tasks.shards import operations
from tasks.shards.answers import Member, View
from tasks.shards.keys import Keys
from tasks.shards.kubernetes import FromKubernetes, Numbers
from tasks.shards.liveness import (
    ByHeartbeat,
    FirstSeen,
    PodSeen,
    Reading,
    UnreadableError,
    merge,
    read_pod,
    read_pods,
)
from throttle.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.support.servers import Client

ENDED = {
    "exitCode": 137,
    "reason": "Error",
    "startedAt": "2026-11-30T02:00:01Z",
    "finishedAt": "2026-11-30T03:00:00Z",
    "containerID": "containerd://5f1c",
}
RUNNING: dict[str, Any] = {
    "metadata": {"name": "worker-7d9-abcde", "namespace": "bots", "uid": "1", "resourceVersion": "812"},
    "spec": {"containers": [{"name": "worker", "image": "x"}], "restartPolicy": "Always", "nodeName": "n1"},
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "ContainersReady", "status": "True"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-30T02:00:09Z"},
        ],
        "containerStatuses": [
            {
                "name": "worker",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": "2026-11-30T02:00:01Z"}},
            }
        ],
    },
}


def pod(
    *,
    phase: str = "Running",
    state: dict[str, Any] | None = None,
    leaving: bool = False,
    ready: str = "True",
    **more: Any,
) -> dict[str, Any]:
    """The running pod with some of it changed."""
    made = copy.deepcopy(RUNNING)
    made["status"]["phase"] = phase
    made["status"]["conditions"][2]["status"] = ready
    if state is not None:
        made["status"]["containerStatuses"][0].update(state=state, **more)
    if leaving:
        made["metadata"].update(deletionTimestamp="2026-11-30T03:01:00Z", deletionGracePeriodSeconds=30)
    return made


def unreported() -> dict[str, Any]:
    """A pod that the kubelet evicted, of whose containers nothing is told."""
    made = pod(phase="Failed", ready="False")
    del made["status"]["containerStatuses"]
    return made


def with_another(state: dict[str, Any] | None) -> dict[str, Any]:
    """A pod being deleted whose worker has ended, with a second container in this state."""
    made = pod(state={"terminated": ENDED}, leaving=True)
    made["spec"]["containers"].append({"name": "proxy"})
    if state is not None:
        made["status"]["containerStatuses"].append({"name": "proxy", "state": state})
    return made


@pytest.mark.parametrize(
    ("item", "ready", "over"),
    [
        pytest.param(RUNNING, True, False, id="running"),
        pytest.param(pod(ready="False"), False, False, id="not ready"),
        pytest.param(pod(ready="Unknown"), False, False, id="its node is silent"),
        pytest.param(pod(leaving=True), False, False, id="being deleted, runs on"),
        pytest.param(pod(leaving=True, state={"terminated": ENDED}), False, True, id="deleted and ended"),
        pytest.param(pod(phase="Failed", state={"terminated": ENDED}), True, True, id="failed and ended"),
        pytest.param(pod(phase="Succeeded", ready="False", state={"terminated": ENDED}), False, True, id="succeeded"),
        pytest.param(pod(phase="Failed", ready="False"), False, False, id="failed for the control plane, seen running"),
        pytest.param(unreported(), False, False, id="failed, nothing reported"),
        pytest.param(pod(ready="False", state={"terminated": ENDED}), False, False, id="ended, may be started again"),
        pytest.param(
            pod(ready="False", state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState={"terminated": ENDED}),
            False, False, id="waits to be started again",
        ),
        pytest.param(
            pod(leaving=True, state={"terminated": {**ENDED, "reason": "ContainerStatusUnknown"}}),
            False, False, id="its end is inferred",
        ),
        pytest.param(
            pod(leaving=True, state={"terminated": {**ENDED, "finishedAt": None}}),
            False, False, id="an end without a time",
        ),
        pytest.param(with_another({"running": {}}), False, False, id="another container runs"),
        pytest.param(with_another(None), False, False, id="another container is not reported"),
        pytest.param(with_another({"terminated": ENDED}), False, True, id="both ended"),
    ],
)  # fmt: skip
def test_over_is_what_cannot_run_any_more(item: dict[str, Any], ready: bool, over: bool) -> None:  # noqa: FBT001
    assert read_pod(item) == PodSeen("worker-7d9-abcde", ready, over)


@pytest.mark.parametrize(
    "item",
    [None, [], {}, {"metadata": None}, {"metadata": {"name": 3}}, {"metadata": {"name": ""}, "status": []}],
)
def test_a_pod_without_a_name_is_left_out(item: object) -> None:
    assert read_pods({"kind": "PodList", "items": [item, RUNNING]}).keys() == {"worker-7d9-abcde"}


SILENT: list[object] = [None, [], {"conditions": {}}, {"phase": 3, "containerStatuses": [None, {"state": []}]}]


@pytest.mark.parametrize("status", SILENT)
def test_a_pod_that_says_nothing_is_neither_ready_nor_over(status: object) -> None:
    assert read_pod({**RUNNING, "status": status}) == PodSeen("worker-7d9-abcde", ready=False, over=False)


NO_LISTS: list[object] = [None, [], {}, {"kind": "Status", "code": 403}, {"kind": "PodList", "items": None}]


@pytest.mark.parametrize("answer", NO_LISTS)
def test_what_is_no_list_of_pods_is_refused(answer: object) -> None:
    with pytest.raises(UnreadableError):
        read_pods(answer)


# ---------------------------------------------------------------- the rule


def view(*names: str, draining: tuple[str, ...] = ()) -> View:
    """Members, each with its boot."""
    return View(tuple(Member(f"{name}#1", 9, name in draining, 0) for name in names))


def reading(asked_s: float, *pods: PodSeen) -> Reading:
    """A look at these pods."""
    return Reading(asked_s, {each.name: each for each in pods})


GOOD, UNREADY, OVER = (PodSeen("b", True, False), PodSeen("b", False, False), PodSeen("b", False, True))  # noqa: FBT003
SEEN = {"a#1": 10.0, "b#1": 10.0}


def marked(merged_view: View) -> set[str]:
    """The members that get no new shards."""
    return {member.name for member in merged_view.members if member.draining}


def test_without_a_reading_heartbeats_decide_alone() -> None:
    assert merge(view("a", "b"), None, SEEN) == (view("a", "b"), ())
    assert asyncio.run(ByHeartbeat().read()) is None


def test_who_is_over_is_given_up_and_who_is_not_ready_gets_nothing_new() -> None:
    assert merge(view("a", "b"), reading(11.0, GOOD), SEEN) == (view("a", "b"), ())
    unready = merge(view("a", "b"), reading(11.0, UNREADY), SEEN)
    assert (marked(unready.view), unready.over) == ({"b#1"}, ())
    over = merge(view("a", "b"), reading(11.0, OVER), SEEN)
    assert (marked(over.view), over.over) == ({"b#1"}, ("b#1",))


def test_a_pod_that_is_not_in_the_list_may_still_run() -> None:
    assert merge(view("a", "b"), reading(11.0), SEEN) == (view("a", "b"), ())


@pytest.mark.parametrize("asked_s", [9.0, 10.0])
def test_a_reading_from_before_the_member_may_be_of_an_earlier_pod_of_its_name(asked_s: float) -> None:
    assert merge(view("a", "b"), reading(asked_s, OVER), SEEN) == (view("a", "b"), ())
    assert merge(view("a", "b"), reading(99.0, OVER), {}) == (view("a", "b"), ())


def test_where_nobody_is_ready_readiness_says_nothing() -> None:
    unready = reading(11.0, UNREADY, PodSeen("a", ready=False, over=False))
    assert merge(view("a", "b"), unready, SEEN) == (view("a", "b"), ())
    assert marked(merge(view("a", "b", draining=("a",)), reading(11.0, UNREADY), SEEN).view) == {"a#1"}


def test_merging_never_makes_a_member_live_longer_or_take_shards_that_drains() -> None:
    draining = view("a", "b", draining=("b",))
    assert merge(draining, reading(11.0, GOOD), SEEN).view == draining


def test_first_seen_is_kept_for_as_long_as_a_member_is_there() -> None:
    seen = FirstSeen()
    assert seen.note(["a#1"], 1.0) == {"a#1": 1.0}
    assert seen.note(["a#1", "b#1"], 2.0) == {"a#1": 1.0, "b#1": 2.0}
    assert seen.note(["b#1"], 3.0) == {"b#1": 2.0}
    assert seen.note(["a#1", "b#1"], 4.0) == {"a#1": 4.0, "b#1": 2.0}


def test_what_a_pod_held_that_is_over_is_free_at_once(server: Client) -> None:
    numbers = operations.Numbers()
    a, b = (Reached(server, operations.Operations(Keys("1"), numbers, f"{name}#1")) for name in "ab")

    def sync(member: Reached) -> operations.Synced:
        call = member.operations.sync(operations.Known(), (), limit=9, draining=False, seen=-1)
        return operations.read_synced(member.ask(call))

    sync(a)
    sync(b)
    server.hdel(Keys("1").state(), "guard")
    a.ask(a.operations.budget(1000, 900, 1000, 1))
    assert a.ask(a.operations.target(2)) == 1
    pending = sync(a).head.pending
    assert pending is not None
    assert all(a.ask(a.operations.claim(pending.version, 9, [0, 1])))
    assert b.ask(b.operations.claim(pending.version, 9, [0, 1])) == [0, 0]
    seen = sync(b).view
    assert seen is not None
    over = merge(seen, reading(11.0, PodSeen("a", ready=False, over=True)), SEEN).over
    for name in over:
        assert b.ask(b.operations.leave(name)) == 1
        assert b.ask(b.operations.leave(name)) == 0  # another pod was faster
    assert all(b.ask(b.operations.claim(pending.version, 9, [0, 1])))


# ---------------------------------------------------------------- the client


class Api:
    """As much of an API server as a list of pods needs. It knows one token."""

    def __init__(self) -> None:
        """Answers with one running pod."""
        self.token = "first"  # noqa: S105 - of no cluster
        self.pods: list[Any] = [RUNNING]
        self.status = 200
        self.requests: list[web.Request] = []
        self.port = free_port()

    async def answer(self, request: web.Request) -> web.Response:
        """One request."""
        self.requests.append(request)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        return web.json_response({"kind": "PodList", "items": self.pods}, status=self.status)


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """The folder that a pod has."""
    (tmp_path / "token").write_text("first")
    (tmp_path / "namespace").write_text("bots")
    return tmp_path


def play(account: Path, scene: Callable[[Api, FromKubernetes], Awaitable[None]]) -> None:
    """Run a scene beside an API server."""

    async def run() -> None:
        api = Api()
        served = web.Application()
        served.router.add_get("/api/v1/namespaces/bots/pods", api.answer)
        runner = web.AppRunner(served, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", api.port).start()
        numbers = Numbers(every_s=0.02, request_s=2.0, stale_s=1.0)
        source = FromKubernetes("app=worker", address=f"http://127.0.0.1:{api.port}", account=account, numbers=numbers)
        try:
            await scene(api, source)
        finally:
            await source.close()
            await runner.cleanup()

    asyncio.run(run())


async def until(source: FromKubernetes, fits: Callable[[Reading | None], bool]) -> Reading | None:
    """Wait until a reading fits."""
    async with asyncio.timeout(30):
        while not fits(found := await source.read()):  # noqa: ASYNC110 - a condition with no event
            await asyncio.sleep(0.01)
    return found


def test_the_pods_of_a_label_are_read_again_and_again(account: Path) -> None:
    async def scene(api: Api, source: FromKubernetes) -> None:
        assert await source.read() is None
        first = await until(source, lambda found: found is not None)
        assert first is not None
        assert first.pods == {"worker-7d9-abcde": PodSeen("worker-7d9-abcde", ready=True, over=False)}
        assert dict(api.requests[0].query) == {"labelSelector": "app=worker"}  # no resourceVersion: the newest state
        api.pods = [pod(leaving=True, state={"terminated": ENDED})]
        found = await until(source, lambda found: found is not None and found.pods["worker-7d9-abcde"].over)
        assert found is not None
        assert found.asked_s > first.asked_s

    play(account, scene)


def test_a_token_that_was_replaced_is_read_anew(account: Path) -> None:
    async def scene(api: Api, source: FromKubernetes) -> None:
        first = await until(source, lambda found: found is not None)
        assert first is not None
        api.token = "second"  # noqa: S105 - of no cluster
        (account / "token").write_text("second\n")
        await until(source, lambda found: found is not None and found.asked_s > first.asked_s)

    play(account, scene)


@pytest.mark.parametrize("trouble", ["status", "nonsense", "token"])
def test_an_api_that_does_not_answer_is_no_news_and_told_once(
    account: Path, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(api: Api, source: FromKubernetes) -> None:
        await until(source, lambda found: found is not None)
        if trouble == "status":
            api.status = 503
        elif trouble == "nonsense":
            api.pods = None  # pyright: ignore[reportAttributeAccessIssue]
        else:
            api.token = "another"  # noqa: S105 - of no cluster
        await until(source, lambda found: found is None)
        api.status, api.pods, api.token = 200, [RUNNING], "first"
        await until(source, lambda found: found is not None)

    caplog.set_level(logging.INFO, "tasks.shards.kubernetes")
    play(account, scene)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "first" not in caplog.text


def test_outside_a_pod_it_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^SHARD_LIVENESS='kubernetes': no service account in .*No such file"):
        FromKubernetes("app=worker", account=tmp_path)
