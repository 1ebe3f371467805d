"""One fleet of the feature tests: its pods on one pool and one server, what they did, and whether all is as before.

Most features need no pods of their own. So one pod on each pool stands for the whole run (`Stage`), and scenario after
scenario is played on all four pools side by side. After each, the fleet must be as it was before: see `settle`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from app.local.processes import Placement, start_pod, wait_ready
from app.local.replay import parse, replay
from app.local.servers import Server
from tests.features import workload
from tests.support.leaks import leaked_keys
from tests.support.servers import Client
from tests.support.waiting import wait_until
from throttle.keys import Keys
from throttle.scripts import Operations, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from app.local.guard import Guard, Process
    from app.local.replay import Entry

TTL_MS, RATIO = 3000, 0.8
STANDS = ("epoch", "seq", "dead", "names", "made", "beats", "pods:*")
"""What a fleet keeps without an expiry, see `throttle.keys`."""
KOMBU = "*_kombu.binding_*"
"""kombu's own notes of which queue is bound for how long, beside the bindings themselves."""


def not_listening(*_: Any) -> None:
    """Do nothing about a result."""


@dataclass(frozen=True)
class Setup:
    """How the pods of a fleet are set up, and how they reach their server."""

    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of Celery."""
    install: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `throttle.install`."""
    prefix: str = ""
    """kombu's `global_keyprefix`."""
    socket: bool = False
    """Reach the broker by its Unix socket."""
    protocol: int = 3
    """RESP2 or RESP3, by the socket."""
    concurrency: int = 4

    @property
    def gate(self) -> str:
        """Where the rule is applied."""
        return str(self.install.get("gate", "take"))

    def at(self, gate: str) -> Setup:
        """The same at a gate."""
        return replace(self, install={**self.install, "gate": gate})


class Fleet:
    """Pods of the feature app on one pool, on a server of their own."""

    def __init__(self, guard: Guard, folder: Path, pool: str, setup: Setup) -> None:
        """Start the server; no pod yet."""
        self.pool, self.setup, self.gate = pool, setup, setup.gate
        self._guard, self._folder = guard, folder
        folder.mkdir(parents=True, exist_ok=True)
        path = guard.folder("s") / "r"
        self.server = Server(guard, options={"unixsocket": str(path)} if setup.socket else {}).start()
        self.client = Client(self.server)
        self.keys = Keys(prefix=setup.prefix)
        self.operations = Operations(self.client, self.keys, Rule(RATIO, TTL_MS, 5, 0))
        broker = f"redis+socket://{path}?protocol={setup.protocol}" if setup.socket else self.server.url
        prefix = {"global_keyprefix": setup.prefix} if setup.prefix else {}
        config = {**setup.config, "broker_transport_options": prefix}
        self.app: Any = workload.make(broker, self.server.url, config=config, install=dict(setup.install))
        # Results are read by `client`: the back end here need not listen for them, nor hear that nobody wants them now.
        backend: Any = self.app.backend
        backend.on_task_call = backend.remove_pending_result = not_listening
        self._placement = Placement(
            self.server.url,
            folder,
            {
                "THROTTLE_TTL": str(TTL_MS // 1000),
                "THROTTLE_JOURNAL": "100000",
                "FEATURES_BROKER": broker,
                "FEATURES_CONFIG": json.dumps(config),
                "FEATURES_INSTALL": json.dumps(dict(setup.install)),
            },
            "tests.features.worker_app",
        )
        self.pods: list[Process] = []
        self._since = b"-"

    # -- pods

    def start(self, *names: str, arguments: Sequence[str] = (), concurrency: int = 0, **settings: str) -> list[Process]:
        """Start pods of these names and wait until they consume."""
        placement = replace(self._placement, settings={**self._placement.settings, **settings})
        concurrency = concurrency or (1 if self.pool == "solo" else self.setup.concurrency)
        started = [
            start_pod(
                self._guard,
                placement,
                name,
                pool=self.pool,
                concurrency=concurrency,
                arguments=["--queues", "celery,passing,letters,everyone", *arguments],
                include=(),
            )
            for name in names
        ]
        self.pods += started
        wait_ready(started)
        self.wait(lambda: self._hear(names), "pods that hear commands: they subscribe a moment after they say ready")
        return started

    def _hear(self, names: Sequence[str]) -> bool:
        """Whether these pods answer."""
        nodes = [f"{name}@local" for name in names]
        answers: Any = self.app.control.broadcast("ping", destination=nodes, reply=True, timeout=2.0, limit=len(nodes))
        return len(answers or ()) == len(nodes)

    def stop(self, pod: Process) -> None:
        """End a pod as Kubernetes does, and see it go in order."""
        pod.terminate()
        code = pod.wait(20.0)
        assert code == 0, pod.read_log()[-3000:]
        self.pods.remove(pod)

    def end(self) -> None:
        """End the pods and the server at once."""
        for pod in self.pods:
            self._guard.end(pod, patience_s=0)
        self.app.backend.client.connection_pool.disconnect()
        self.app.close()
        self.client.close()
        self.server.kill()

    # -- work

    def send(self, name: str, *args: Any, **options: Any) -> str:
        """Publish a task; returns its id."""
        return self.app.send_task(name, args, **options).id

    def sign(self, name: str, *args: Any) -> Any:
        """A task's signature, for a canvas."""
        return self.app.tasks[name].s(*args)

    def state(self, task_id: str) -> str:
        """What the result back end says."""
        return self._meta(task_id).get("status", "PENDING")

    def result(self, task_id: str) -> Any:
        """The value of a task, or its exception by name and words, once it has one.

        It is read once: the state of a retry that another pod has ended by then may still be written over it.
        """
        found: dict[str, Any] = {}

        def has_one() -> bool:
            found.update(self._meta(task_id))
            return found.get("status") in ("SUCCESS", "FAILURE", "REVOKED")

        self.wait(has_one, "a result")
        result = found["result"]
        return result if found["status"] == "SUCCESS" else f"{result['exc_type']}: {result['exc_message']}"

    def _meta(self, task_id: str) -> dict[str, Any]:
        raw = cast("bytes | None", self.client.get(f"celery-task-meta-{task_id}"))
        return json.loads(raw) if raw else {}

    def control(self, name: str, **arguments: Any) -> Any:
        """Give the pods a command and return the answer of one."""
        answers: Any = self.app.control.broadcast(
            name, arguments=arguments, reply=True, timeout=10.0, limit=len(self.pods)
        )
        assert answers, f"no answer to {name}"
        (answer,) = answers[0].values()
        return answer

    def open(self, key: str) -> None:
        """Let the tasks that wait for a key go on."""
        self.client.lpush(key, "1")
        self.client.expire(key, workload.KEEP_S)

    # -- what happened

    def runs(self, what: str = "start", *tasks: str) -> list[dict[str, Any]]:
        """Records of starts or ends, of these tasks or of all, in the order in which they came."""
        raw = cast("list[bytes]", self.client.lrange(workload.RUNS, 0, -1))
        records = [json.loads(record) for record in raw]
        return [r for r in records if r["what"] == what and (not tasks or r["task"] in tasks)]

    def started(self, task_id: str) -> int:
        """How often a task began to run."""
        return len(self.runs("start", task_id))

    def journal(self, *operations: str) -> list[dict[str, str]]:
        """Entries of the log of operations since the scenario began, of these kinds."""
        return [{"op": e.op, **e.fields} for e in self._entries(self._since) if not operations or e.op in operations]

    def dead(self) -> list[str]:
        """Reasons of the dead letters since the scenario began."""
        entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.client.xrange(self.keys.dead(), self._since))
        return [fields[b"reason"].decode() for _, fields in entries]

    def held(self) -> int:
        """Messages that anybody holds."""
        return sum(self.client.hlen(key) for key in self.client.keys(self.keys.held("*")))

    def unacknowledged(self) -> int:
        """Messages in kombu's own file of what was delivered, which only the gate before the pool fills."""
        return self.client.hlen(f"{self.setup.prefix}unacked") + self.client.zcard(f"{self.setup.prefix}unacked_index")

    def parked(self) -> int:
        """Messages that wait for their time in Redis."""
        return self.operations.counts().parked

    def queued(self, name: str = "celery") -> int:
        """Messages in a queue, whatever their priority."""
        first = f"{self.setup.prefix}{name}"
        return self.client.llen(first) + sum(self.client.llen(key) for key in self.client.keys(f"{first}\x06\x16*"))

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 20.0) -> Any:
        """Wait for a condition; on failure the pods' logs tell why it did not come."""

        def story() -> str:
            logs = "\n".join(f"--- {pod.name}\n{pod.read_log()[-3000:]}" for pod in self.pods)
            return f"{what}; {self.operations.counts()}; logs:\n{logs}"

        return wait_until(condition, timeout_s, what=story)

    def wait_done(self, *tasks: str, timeout_s: float = 20.0) -> None:
        """Wait until these tasks have succeeded."""

        def missing() -> set[str]:
            return set(tasks) - {r["task"] for r in self.runs("end", *tasks) if r["state"] == "SUCCESS"}

        self.wait(lambda: not missing(), f"{len(tasks)} tasks done", timeout_s)

    # -- before and after a scenario

    def begin(self) -> None:
        """Look only at what happens from here on."""
        last = cast("list[tuple[bytes, Any]]", self.client.xrevrange(self.keys.journal(), count=1))
        milliseconds, _, number = (last[0][0] if last else b"0-0").partition(b"-")
        self._since = milliseconds + b"-" + str(int(number) + 1).encode()

    def settle(self) -> None:
        """Wait until every slot is back and nothing is held, queued or parked; the rule held, and nothing is left."""
        self.wait(lambda: self.held() == 0, "nothing held")
        self.wait(lambda: self.operations.counts().busy == 0, "no pod busy")
        counts = self.operations.counts()
        assert (counts.parked, counts.alive) == (0, len(self.pods)), counts
        assert [name for name in ("celery", "critical", "passing") if self.queued(name)] == []
        self.wait(lambda: self.unacknowledged() == 0, "nothing in kombu's hands")
        found = replay(self._entries(b"-"), ratio=RATIO, ttl_ms=TTL_MS)
        assert (found.violations, found.contradictions) == ([], [])
        assert self.client.hget(self.keys.stats(), "violations") is None, "a task ran that nobody took"
        leaked = leaked_keys(self.client, [KOMBU, *(self.keys.namespace() + name for name in STANDS)])
        assert leaked == [], leaked

    def _entries(self, since: bytes) -> list[Entry]:
        return parse(cast("list[tuple[bytes, dict[bytes, bytes]]]", self.client.xrange(self.keys.journal(), since)))


class Stage:
    """One fleet on each pool, started when the first scenario needs it, with one pod called `one`."""

    def __init__(self, guard: Guard, folder: Path, setup: Setup) -> None:
        """Prepare; nothing is started."""
        self._guard, self._folder, self._setup = guard, folder, setup
        self._fleets: dict[str, Fleet] = {}

    def fleet(self, pool: str) -> Fleet:
        """The fleet on a pool."""
        if pool not in self._fleets:
            fleet = self._fleets[pool] = Fleet(self._guard, self._folder / pool, pool, self._setup)
            fleet.start("one")
        return self._fleets[pool]

    def end(self) -> None:
        """End all of them."""
        for fleet in self._fleets.values():
            fleet.end()
