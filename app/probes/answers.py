"""What is answered on each path: the verdicts with their reasons, and the metrics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from app.probes import verdicts
from app.probes.metrics import Metrics
from app.probes.server import json_answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.probes.metrics import Reading
    from app.probes.verdicts import Facts, Limits, Verdict

OK, NOT_FOUND, UNAVAILABLE = 200, 404, 503


class Watch(Protocol):
    """Who knows the facts."""

    @property
    def role(self) -> str:
        """Worker or beat."""
        ...

    def look(self, now_s: float) -> None:
        """See whether the loop turns."""
        ...

    def facts(self, now_s: float) -> Facts:
        """What is known now."""
        ...

    def details(self) -> Mapping[str, Any]:
        """What a person wants to know beside the verdict."""
        ...

    def readings(self, now_s: float) -> dict[str, Sequence[Reading]]:
        """Metrics that are read when somebody asks."""
        ...


class Probes:
    """The probes of one process."""

    def __init__(self, watch: Watch, limits: Limits) -> None:
        """Answer from what `watch` knows."""
        self.watch = watch
        self.limits = limits
        self.metrics = Metrics(self._readings)

    def look(self, now_s: float) -> None:
        """Once a second."""
        self.watch.look(now_s)
        self.metrics.work_off()

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        if path == "/metrics":
            content_type, page = self.metrics.page(accept)
            return OK, content_type, page
        facts = self.watch.facts(time.monotonic())
        match path:
            case "/startup":
                return self._told(verdicts.startup(facts))
            case "/ready":
                return self._told(verdicts.ready(facts, self.limits))
            case "/health":
                return self._told(verdicts.health(facts, self.limits))
            case _:
                return json_answer(NOT_FOUND, {"paths": ["/startup", "/ready", "/health", "/metrics"]})

    def _told(self, verdict: Verdict) -> tuple[int, str, bytes]:
        body = {**verdict.body(), "role": self.watch.role, **self.watch.details()}
        return json_answer(OK if verdict.ok else UNAVAILABLE, body)

    def _readings(self) -> dict[str, Sequence[Reading]]:
        now_s = time.monotonic()
        ok = verdicts.ready(self.watch.facts(now_s), self.limits).ok
        return {**self.watch.readings(now_s), "headroom_ready": [((), float(ok))]}
