"""Real beats, several at a time, and what they published."""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, cast

from app.local.processes import Placement
from app.local.waiting import wait_until
from throttle.keys import Keys
from throttle.schedule import look
from throttle.scripts import Operations, Rule

if TYPE_CHECKING:
    from pathlib import Path

    import redis

    from app.local.guard import Guard, Process
    from throttle.schedule import Look

KEYS = Keys()
QUEUES = ("each", "last", "skip")
EACH_US = 100_000
"""Between two due times of the entry `each`, whose missed runs are all made up."""


class Beats:
    """Beats of one app on one server. Each may reach it by an address of its own."""

    def __init__(self, guard: Guard, client: redis.Redis, url: str, folder: Path, *, lease_s: float = 1.0) -> None:
        """Nothing is started."""
        self.client = client
        self.url = url
        self.lease_s = lease_s
        self.running: dict[str, Process] = {}
        self._guard, self._folder = guard, folder
        self._numbers = itertools.count(1)
        self._operations = Operations(client, KEYS, Rule(0.8, 3000, 5))

    def start(self, *, url: str = "", app: str = "tests.worker.beat_app", name: str = "", **settings: str) -> Process:
        """Start a beat and return at once; its pod is called `name`, or `beat-1`, `beat-2`, ..."""
        name = name or f"beat-{next(self._numbers)}"
        settings = {"THROTTLE_BEAT_LEASE": str(self.lease_s), "THROTTLE_TTL": "3", "POD_NAME": name, **settings}
        placement = Placement(url or self.url, self._folder, settings, app)
        command = [sys.executable, "-m", "celery", "-A", app, "beat", "--loglevel", "INFO", "--pidfile", ""]
        made = self._guard.start(name, command, log=placement.log(name), env=placement.environment(), cwd=self._folder)
        self.running[name] = made
        return made

    def look(self) -> Look:
        """Who leads, and the records."""
        return look(self._operations)

    def leader(self) -> str:
        """Pod of the beat that leads, '' when nobody does."""
        return self.look().leader.partition("#")[0]

    def wait_leader(self, *, other_than: str = "", timeout_s: float = 30.0) -> str:
        """Wait until a beat leads (and not this one); its pod."""
        return wait_until(
            lambda: name if (name := self.leader()) != other_than else "",
            timeout_s,
            what=lambda: f"a leader; {self.logs()}",
        )

    def wait_standby(self, name: str) -> None:
        """Wait until this beat has asked (again) and stands by."""
        since_ms = self.look().server_us // 1000

        def asked() -> bool:
            seen = cast("list[tuple[bytes, float]]", self.client.zrange(KEYS.schedule_beats(), 0, -1, withscores=True))
            return any(member.startswith(f"{name}#".encode()) and at_ms >= since_ms for member, at_ms in seen)

        wait_until(lambda: asked() and self.leader() != name, 30.0, what=lambda: f"{name} to stand by; {self.logs()}")

    def wait_runs(self, name: str, more: int) -> None:
        """Wait until an entry has run so many times more."""
        begun = self.runs(name)
        wait_until(lambda: self.runs(name) >= begun + more, 30.0, what=lambda: f"{more} runs of {name}; {self.logs()}")

    def runs(self, name: str) -> int:
        """How often an entry has run, by its record."""
        record = self.look().records.get(name)
        return record.runs if record else 0

    def published(self) -> Counter[tuple[str, int]]:
        """(entry, due time in µs) of each message that lies in the queues."""
        found: Counter[tuple[str, int]] = Counter()
        for queue in QUEUES:
            for raw in cast("list[bytes]", self.client.lrange(queue, 0, -1)):
                headers = json.loads(raw)["headers"]
                at = datetime.fromisoformat(headers["beat_due"])
                found[headers["beat_entry"], int(at.timestamp()) * 1_000_000 + at.microsecond] += 1
        return found

    def check(self) -> Counter[tuple[str, int]]:
        """No run is there twice, and none of `each` is missing between its first and its last."""
        found = self.published()
        assert {run: count for run, count in found.items() if count > 1} == {}
        dues = sorted(due for name, due in found if name == "each")
        assert {later - earlier for earlier, later in itertools.pairwise(dues)} <= {EACH_US}
        return found

    def logs(self) -> str:
        """The last lines of every beat's log."""
        return "\n".join(f"--- {name}\n{process.read_log()[-1500:]}" for name, process in self.running.items())

    def stop(self) -> None:
        """End them in order."""
        for process in self.running.values():
            self._guard.end(process, patience_s=10)

    def end(self) -> None:
        """Kill what still runs."""
        for process in self.running.values():
            self._guard.end(process, patience_s=0)
