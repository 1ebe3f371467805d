"""Decides whether a fleet kept its promises: what was lost, done twice, put back, out of order.

The figures mean what the model says they mean:

| figure | meaning |
|---|---|
| lost | published, and neither completed nor dead-lettered nor still held or queued at the end |
| doubled | completed more than once |
| violations | admissions of normal messages against the rule, by replay of the journal |
| requeues | messages that a denied gate put back (what a dead pod held is returned, not requeued) |
| order | takes of a list that came before an earlier message of the same list |

Pure: no I/O, no clock. The records come from the tasks themselves (``app.local.recorder``), the
journal from the scripts, the remaining messages from the queues at the end: three witnesses that do
not know of each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from app.local.replay import Replay, Take, Violation, replay

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from app.local.replay import Entry

# States in which a task is over. RETRY is not: the message that follows it is.
OVER = frozenset({"SUCCESS", "FAILURE", "IGNORED", "REVOKED"})


class Published(NamedTuple):
    """One message that a producer sent."""

    task: str
    queue: str
    at_s: float
    """When the call that sent it began, by this machine's clock."""


@dataclass
class Run:
    """One execution of a task on a pod; without an end when its pod died in it."""

    task: str
    name: str
    pod: str
    queue: str
    take: int | None
    started_s: float
    ended_s: float | None = None
    state: str | None = None

    @property
    def completed(self) -> bool:
        """Whether this execution came to the task's end."""
        return self.state in OVER


@dataclass(frozen=True)
class Verdict:
    """What was found. The lists name the tasks, so that each finding can be followed up."""

    published: int
    done: int
    lost: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])
    violations: list[Violation] = field(default_factory=list[Violation])
    contradictions: list[Violation] = field(default_factory=list[Violation])
    requeues: int = 0
    returned: int = 0
    out_of_order: list[str] = field(default_factory=list[str])
    order_checked: int = 0
    """Takes whose place in their list could be checked: those that led to a task published here."""
    critical_ms: list[float] = field(default_factory=list[float])

    @property
    def broken(self) -> list[str]:
        """The promises that were broken, in words; empty when all were kept.

        A task done twice is none: delivery is at least once, and a pod may die between its task's
        last line and the acknowledgement.
        """
        found: list[str] = []
        if self.lost:
            found.append(f"{len(self.lost)} tasks lost")
        if self.violations:
            found.append(f"{len(self.violations)} admissions against the rule")
        if self.contradictions:
            found.append(f"{len(self.contradictions)} operations that must have had no effect")
        if self.requeues:
            found.append(f"{self.requeues} messages put back")
        if self.out_of_order:
            found.append(f"{len(self.out_of_order)} messages taken out of order")
        return found


def runs_from(records: Iterable[Mapping[str, Any]]) -> list[Run]:
    """Join the records of starts and ends into executions, in the order of their starts.

    A second start of a task without an end of the first is a second execution: the first died.
    """
    runs: list[Run] = []
    open_runs: dict[tuple[str, str], Run] = {}
    for record in records:
        where = (str(record["task"]), str(record["pod"]))
        if record["what"] == "start":
            take = str(record.get("take"))
            run = Run(
                task=where[0],
                name=str(record["name"]),
                pod=where[1],
                queue=str(record.get("queue")),
                take=int(take) if take.isdigit() else None,
                started_s=float(record["at"]),
            )
            open_runs[where] = run
            runs.append(run)
        elif where in open_runs:
            run = open_runs.pop(where)
            run.ended_s = float(record["at"])
            run.state = str(record["state"])
    return runs


def judge(
    *,
    journal: Sequence[Entry],
    published: Sequence[Published],
    records: Iterable[Mapping[str, Any]],
    ratio: float,
    ttl_ms: int,
    remaining: Collection[str] = (),
    critical_queue: str = "critical",
) -> Verdict:
    """Weigh the three witnesses against each other.

    Args:
        journal: complete from the fleet's first join on; empty for a fleet without the brake.
        published: what was sent, each queue's in the order of sending.
        records: starts and ends as the recorder wrote them. Tasks that were not published here
            (beat's) are left out of the figures.
        ratio: share of the living pods that may be busy.
        ttl_ms: a member silent for this long is dead.
        remaining: tasks still queued, held, parked or dead-lettered when the records were read.
        critical_queue: its tasks' way from publication to start goes into ``critical_ms``.
    """
    wanted = {message.task for message in published}
    runs = [run for run in runs_from(records) if run.task in wanted]
    completed = Counter(run.task for run in runs if run.completed)
    found = replay(journal, ratio=ratio, ttl_ms=ttl_ms) if journal else Replay()
    order = order_of(found.takes, published, runs)
    return Verdict(
        published=len(published),
        done=len(completed),
        lost=[m.task for m in published if m.task not in completed and m.task not in remaining],
        doubled=sorted(task for task, times in completed.items() if times > 1),
        violations=found.violations,
        contradictions=found.contradictions,
        requeues=found.put_back,
        returned=found.returned,
        out_of_order=order.wrong,
        order_checked=order.checked,
        critical_ms=critical_ms(published, runs, critical_queue),
    )


class Order(NamedTuple):
    """The order of the takes: tasks that came too early, and how many takes were looked at."""

    wrong: list[str]
    checked: int


def order_of(takes: Sequence[Take], published: Sequence[Published], runs: Iterable[Run]) -> Order:
    """Find tasks whose first delivery came before that of a message published earlier to the same queue.

    A take is matched with a task by the pod and the take's number that the task itself recorded.
    Redeliveries are left out: they go to the head of their queue on purpose. So are messages that
    were sent at the same instant by different producers: their order is not known here.
    """
    place = {message.task: number for number, message in enumerate(published)}
    started: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for run in runs:
        if run.take is not None:
            started[run.pod, run.take].append(run)
    wrong: list[str] = []
    last: dict[str, int] = {}
    checked = 0
    for take in takes:
        run = _run_of(take, started)
        if run is None or take.deliveries > 0:
            continue
        checked += 1
        if place[run.task] < last.get(take.key, -1):
            wrong.append(run.task)
        last[take.key] = max(last.get(take.key, -1), place[run.task])
    return Order(wrong, checked)


def critical_ms(published: Iterable[Published], runs: Iterable[Run], queue: str) -> list[float]:
    """Milliseconds from the sending of each critical task to its first start, in the order of sending."""
    first: dict[str, float] = {}
    for run in runs:
        first.setdefault(run.task, run.started_s)
    return [
        round((first[message.task] - message.at_s) * 1000, 1)
        for message in published
        if message.queue == queue and message.task in first
    ]


def longest_idle_s(published: Iterable[Published], runs: Iterable[Run]) -> float:
    """The longest time in which a message waited to be started and no task ran anywhere.

    This is what a fleet that stands still looks like. Only the first start of a task ends such a
    time: what a dead pod held did not wait in a queue. A run whose pod died in it counts for nothing
    after its start, so the figure is rather too large than too small.
    """
    sent = {message.task: message.at_s for message in published}
    longest, busy_until = 0.0, 0.0
    for run in sorted(runs, key=lambda run: run.started_s):
        waited_since = sent.pop(run.task, None)
        if waited_since is not None:
            longest = max(longest, run.started_s - max(busy_until, waited_since))
        busy_until = max(busy_until, run.started_s if run.ended_s is None else run.ended_s)
    return longest


def _run_of(take: Take, started: Mapping[tuple[str, int], Sequence[Run]]) -> Run | None:
    """The execution that a take led to: the first that started after it (a pod's numbers begin anew)."""
    candidates = started.get((take.pod, take.take), ())
    later = [run for run in candidates if run.started_s * 1000 >= take.at_ms - 1]
    return min(later, key=lambda run: run.started_s, default=None)
