"""Decides what a soak found, from facts that do not know of each other.

| fact | who tells it |
|---|---|
| what was accepted | the producer |
| what ran, where and when | the tasks, on a server that nobody harmed |
| what was taken, acknowledged and returned | the journal, which the judge replays |
| what befell whom | the hands that did it |
| what is left | the queues and the keys at the end |

A task that was done twice is *explained* when one of its runs met with a harm that takes a run's acknowledgement away:
its process was killed, or its pod was silent for about a TTL, or ended while it could not tell Redis, between the run's
start (or just before: it may have been frozen with the message in its hands) and the next one's. A task that asked to
be run again may also have been published twice, by a pod that did not hear the answer. All else is unexplained.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from app.local.judge import OVER
from app.local.observe import task_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from benchmarks.chaos.hands import Harm

KILLS = frozenset({"kill", "kill-child", "poison", "untold"})
SILENCES = frozenset({"freeze", "refuse", "hold", "swallow"})
LONG = 0.6
"""Of a TTL. A pod beats every two ninths of it and counts as dead a TTL after its last beat; on waking it has to be
given processor time before it is heard again."""
ANSWERS = 3
"""So many times longer than an answer may take is a TTL."""
CLOSE_S = 0.7
"""Before a run's start its message is on its way to it, after its end the acknowledgement on its way from it."""


class Run(NamedTuple):
    """One execution, from its record of a start and perhaps one of an end."""

    pod: str
    from_s: float
    to_s: float | None
    state: str | None

    @property
    def completed(self) -> bool:
        """Whether it came to the task's end."""
        return self.state in OVER


@dataclass(frozen=True)
class Findings:
    """What was found; the lists name the tasks."""

    lost: list[str] = field(default_factory=list[str])
    explained: dict[str, str] = field(default_factory=dict[str, str])
    """Done twice: task -> the harm that it met with."""
    unexplained: list[str] = field(default_factory=list[str])
    condemned: list[str] = field(default_factory=list[str])
    """Dead letters that were no poison: their pods died over them too often."""
    spared: list[str] = field(default_factory=list[str])
    """Poisons and unreadable messages that did not become dead letters, or became more than one."""


def runs_of(records: Iterable[Mapping[str, Any]]) -> dict[str, list[Run]]:
    """Task -> its runs in the order of their starts. A run is told from another by its process and its take."""
    open_runs: dict[tuple[str, ...], Run] = {}
    found: dict[str, list[Run]] = defaultdict(list)
    for record in records:
        task = str(record["task"])
        where = (task, *(str(record[name]) for name in ("pod", "pid", "take", "attempt")))
        if record["what"] == "start":
            if where in open_runs:
                found[task].append(open_runs[where])
            open_runs[where] = Run(str(record["pod"]), float(record["at"]), None, None)
        elif where in open_runs:
            run = open_runs.pop(where)
            found[task].append(run._replace(to_s=float(record["at"]), state=str(record["state"])))
    for where, run in open_runs.items():
        found[where[0]].append(run)
    return {task: sorted(runs, key=lambda run: run.from_s) for task, runs in found.items()}


def check(
    *,
    accepted: Sequence[str],
    poisons: Collection[str],
    garbage: Collection[bytes],
    retried: Collection[str],
    records: Iterable[Mapping[str, Any]],
    dead: Iterable[bytes],
    remaining: Collection[str],
    harms: Sequence[Harm],
    ttl_s: float,
) -> Findings:
    """Weigh the facts against each other.

    Args:
        accepted: tasks whose publication was answered.
        poisons: tasks that end their process; some may not have been accepted.
        garbage: messages that nobody can read, accepted.
        retried: tasks that ask to be run again.
        records: starts and ends, as the tasks told them.
        dead: the raw messages of the dead letters.
        remaining: tasks that are still queued, held or parked.
        harms: what befell whom.
        ttl_s: after so much silence a pod counts as dead.
    """
    runs = runs_of(records)
    letters = Counter(task_of(raw) or raw.decode(errors="replace") for raw in dead)
    done = {task for task, its in runs.items() if any(run.completed for run in its)}
    condemned = {task for task in letters if task not in poisons and task.encode() not in garbage}
    doomed = [task for task in accepted if task in poisons] + [raw.decode() for raw in garbage]
    explained: dict[str, str] = {}
    unexplained: list[str] = []
    for task, its in runs.items():
        if sum(run.completed for run in its) > 1:
            why = reason(its, harms, ttl_s=ttl_s, retried=task in retried)
            if why:
                explained[task] = why
            else:
                unexplained.append(task)
    return Findings(
        lost=[task for task in accepted if task not in done and task not in letters and task not in remaining],
        explained=explained,
        unexplained=unexplained,
        condemned=sorted(condemned),
        spared=[task for task in doomed if letters[task] != 1],
    )


def reason(runs: Sequence[Run], harms: Sequence[Harm], *, ttl_s: float, retried: bool) -> str:
    """The harm that explains why a task was done more than once; empty when there is none."""
    for run, following in zip_longest(runs, runs[1:]):
        until_s = max(following.from_s if following else 0.0, (run.to_s or run.from_s) + CLOSE_S)
        for harm in harms:
            silence = silence_s(harm, ttl_s)
            over = harm.from_s + silence < run.from_s - CLOSE_S
            if over or harm.from_s > until_s or harm.pod not in ("", run.pod):
                continue
            long = silence >= LONG * ttl_s
            if harm.pod and (harm.kind in KILLS or (harm.kind in SILENCES and long)):
                return harm.kind
            if retried and harm.kind != "slow":
                return f"{harm.kind} while it was published again"
    return ""


def silence_s(harm: Harm, ttl_s: float) -> float:
    """For how long it keeps a pod silent: what was swallowed at its end is waited for until the answer is overdue."""
    return harm.to_s - harm.from_s + (ttl_s / ANSWERS if harm.kind == "swallow" else 0.0)
