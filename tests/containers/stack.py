"""The stack of docker-compose.yml under a project name of its own, and what the fleet's Redis says about it.

The engine is asked through its command line, and Redis at the address that its container has on the engine's bridge:
the compose file publishes no port of it, and nothing is written twice for the tests.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import redis

from app.local.servers import free_port
from tests.support.waiting import wait_until
from throttle.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
KEYS = Keys()
COMMAND_S = 180


class Taken(NamedTuple):
    """One entry of the journal: a message that a pod took."""

    pod: str
    sequence: int
    deliveries: int


class Stack:
    """A running stack. Environment: HEADROOM_DOCKER, DOCKER_HOST, HEADROOM_IMAGE and REDIS_IMAGE (`.ci/containers`)."""

    def __init__(self, **settings: str) -> None:
        """Prepare; ``settings`` are variables of the compose file."""
        self.docker_command = os.environ["HEADROOM_DOCKER"]
        self.project = f"headroom-test-{os.getpid()}"
        self.flower_port = free_port()
        self._environment = {**os.environ, **settings, "FLOWER_PORT": str(self.flower_port)}
        self._compose = self._compose_command()

    def _compose_command(self) -> list[str]:
        """The plug-in `docker compose` where there is one, else the older program."""
        plugin = [self.docker_command, "compose"]
        if subprocess.run([*plugin, "version"], check=False, capture_output=True).returncode == 0:
            return plugin
        return [shutil.which("docker-compose") or "docker-compose"]

    def compose(self, *arguments: str) -> str:
        """Run a command of compose in the repository's folder; returns what it prints."""
        return self._run([*self._compose, "--project-name", self.project, *arguments])

    def docker(self, *arguments: str) -> str:
        """Run a command of the engine's client."""
        return self._run([self.docker_command, *arguments])

    def _run(self, command: Sequence[str]) -> str:
        answer = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=ROOT, env=self._environment, timeout=COMMAND_S
        )
        assert answer.returncode == 0, f"{' '.join(command)}\n{answer.stdout}{answer.stderr}"
        return answer.stdout.strip()

    # -- its containers

    def scale(self, workers: int | None = None) -> None:
        """Start it, or change the number of workers (None: what the file says), and wait until all is well."""
        number = [] if workers is None else ["--scale", f"worker={workers}"]
        self.compose("up", "--detach", "--no-build", *number)
        self.wait_healthy()

    def containers(self, service: str = "") -> list[str]:
        """Ids of the running containers, in full."""
        labels = [f"label=com.docker.compose.project={self.project}"]
        if service:
            labels.append(f"label=com.docker.compose.service={service}")
        filters = list(itertools.chain.from_iterable(("--filter", label) for label in labels))
        return self.docker("ps", "--quiet", "--no-trunc", *filters).split()

    def inspect(self, container: str) -> dict[str, Any]:
        """What the engine knows of a container, also of one that has ended."""
        return json.loads(self.docker("inspect", container))[0]

    def state(self, container: str) -> Mapping[str, Any]:
        """The part of that which changes: Status, Pid, ExitCode, Health."""
        return self.inspect(container)["State"]

    def wait_healthy(self) -> None:
        """Wait until every container's own check says that it is well."""
        wait_until(
            lambda: all(self.state(container)["Health"]["Status"] == "healthy" for container in self.containers()),
            90,
            what=lambda: "all containers to be healthy:\n" + self.compose("ps") + "\n" + self.logs(),
            every_s=0.5,
        )

    def run_in(self, container: str, *command: str) -> str:
        """Run a command in a container, as its own user."""
        return self.docker("exec", container, *command)

    def kernel_kills(self, container: str) -> int:
        """How many processes of a container the kernel has killed for the lack of memory."""
        files = "/sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control"
        said = self.run_in(container, "sh", "-c", f"cat {files} 2>/dev/null || true").splitlines()
        return sum(int(line.split()[1]) for line in said if line.startswith("oom_kill "))

    def container_of(self, pod: str) -> str:
        """The container of a pod: its name is the container's short id."""
        return next(container for container in self.containers("worker") if container.startswith(pod))

    def run_worker(self, *options: str, memory: str, **settings: str) -> str:
        """Start one more worker, which knows the tasks in chores.py as `chores`; returns its container's id.

        It is confined as in the compose file but for its own limit of memory; the caller removes it.
        """
        variables = {"REDIS_URL": "redis://redis:6379/0", "PYTHONPATH": "/srv/headroom:/chores", **settings}
        given = itertools.chain.from_iterable(("--env", f"{name}={value}") for name, value in variables.items())
        tmp = "/tmp:mode=1777"  # noqa: S108 - in the container
        confined = ["--user", "10001:10001", "--read-only", "--tmpfs", tmp, "--cap-drop", "ALL"]
        confined += ["--memory", memory, "--memory-swap", memory, "--network", f"{self.project}_broker"]
        volume = ["--volume", f"{ROOT / 'tests' / 'containers' / 'chores.py'}:/chores/chores.py:ro"]
        image = [self._environment["HEADROOM_IMAGE"], "worker", "--include=chores", "--without-mingle", *options]
        return self.docker("run", "--detach", *confined, *volume, *given, *image)

    def logs(self, *services: str) -> str:
        """The last lines of every container."""
        return self.compose("logs", "--no-color", "--tail", "60", *services)

    def end(self) -> None:
        """Remove it with its data and its networks."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5")

    # -- its fleet

    @property
    def redis_url(self) -> str:
        """Where this machine reaches the stack's Redis; another address after a restart of it."""
        (container,) = self.containers("redis")
        network = self.inspect(container)["NetworkSettings"]["Networks"][f"{self.project}_broker"]
        return f"redis://{network['IPAddress']}:6379/0"

    def client(self) -> redis.Redis:
        """A client of the stack's Redis."""
        return redis.Redis.from_url(self.redis_url)

    def alive(self) -> set[str]:
        """Pods that the fleet counts."""
        return {pod_of(member) for member in cast("list[bytes]", self.client().zrange(KEYS.alive(), 0, -1))}

    def holders(self) -> set[str]:
        """Pods that hold a message."""
        with self.client() as client:
            members = cast("list[bytes]", client.zrange(KEYS.busy(), 0, -1))
            return {pod_of(member) for member in members if client.hlen(KEYS.held(member.decode()))}

    def incarnation(self, pod: str) -> str:
        """The newest incarnation of a pod; empty when the fleet has forgotten it."""
        member = cast("bytes | None", self.client().hget(KEYS.names(), pod))
        return member.decode() if member else ""

    def succeeded(self, tasks: Sequence[str]) -> set[str]:
        """Which of these tasks have a result, and a good one."""
        raw = cast("list[bytes | None]", self.client().mget([f"celery-task-meta-{task}" for task in tasks]))
        results = [json.loads(result) for result in raw if result]
        return {result["task_id"] for result in results if result["status"] == "SUCCESS"}

    def taken(self) -> list[Taken]:
        """Every take so far, in order."""
        entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.client().xrange(KEYS.journal()))
        return [
            Taken(pod_of(fields[b"member"]), int(fields[b"seq"]), int(fields[b"deliveries"]))
            for _, fields in entries
            if fields[b"op"] == b"take"
        ]


def pod_of(member: bytes) -> str:
    """The pod of an incarnation."""
    return member.decode().rpartition("#")[0]
