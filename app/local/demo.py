"""The demonstration: a real fleet, a flood of work, a pod killed in the middle, and the bill.

What happens, in this order:

1. A server, the worker pods, beat and Flower start; the TTL is short (6 s), so that a death is
   noticed while one watches.
2. A flood of tasks is published, with some real files to compress among them.
3. With a quarter of it done, five critical tasks are sent, half a second apart.
4. With two fifths of it done, one pod that is in the middle of a task is killed (SIGKILL to its
   whole group) and not replaced.
5. When nothing is left to do, the journal, the tasks' own records and the queues are weighed
   against each other (``app.local.judge``), the files are unpacked and compared, and the result is
   printed. A promise that was broken makes the exit code 1.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
import sysconfig
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.local.judge import Published, Verdict, judge, longest_idle_s, runs_from
from app.local.stage import QUEUES, Stage, update
from throttle.settings import load_settings

if TYPE_CHECKING:
    from app.local.board import Board
    from app.local.observe import Observer

TTL_S = 6.0
JOURNAL = 1_000_000
FILES = 6
CRITICAL = 5
CRITICAL_EVERY_S = 0.5
CRITICAL_SECONDS = 0.2
CRITICAL_FROM, KILL_FROM = 0.25, 0.4
# "At once" on a machine that also runs everything else; what is really seen is a few milliseconds.
CRITICAL_LATE_MS = 1000.0
LOOK_EVERY_S = 0.05
# A waiting pod looks once a second by itself; a fleet that rests longer while work waits stands still.
IDLE_S = 2.0


@dataclass
class Outcome:
    """What the demonstration showed; ``as_json`` is its machine-readable form."""

    tasks: int
    done: int
    verdict: Verdict
    files_identical: int
    kills: int
    seconds: float
    total_seconds: float
    reserve: int
    idle_s: float
    broken: list[str] = field(default_factory=list[str])

    def as_json(self) -> dict[str, Any]:
        """The figures by name; ``tasks`` and ``done`` are those of the flood, the rest is of all."""
        verdict = self.verdict
        return {
            "tasks": self.tasks,
            "done": self.done,
            "lost": len(verdict.lost),
            "doubled": len(verdict.doubled),
            "violations": len(verdict.violations),
            "requeues": verdict.requeues,
            "returned": verdict.returned,
            "out_of_order": len(verdict.out_of_order),
            "order_checked": verdict.order_checked,
            "critical_ms": verdict.critical_ms,
            "files": FILES,
            "files_identical": self.files_identical,
            "kills": self.kills,
            "idle_s": round(self.idle_s, 3),
            "seconds": round(self.seconds, 2),
            "total_seconds": round(self.total_seconds, 2),
            "broken": self.broken,
        }


class Demo:
    """One run of the demonstration on a stage that stands."""

    def __init__(self, stage: Stage, board: Board, *, tasks: int, seconds: float) -> None:
        """``tasks`` of ``seconds`` each are the flood."""
        self.stage = stage
        self.board = board
        self.tasks = tasks
        self.task_seconds = seconds
        self.published: list[Published] = []
        self.flood: set[str] = set()
        self.killed: set[str] = set()
        self._reported: set[str] = set()
        self._critical_sent = 0
        self._critical_next_s = 0.0
        self._victims_task = ""

    def run(self) -> Outcome:
        """Start the fleet, play the scene to its end, and weigh what happened."""
        began_s = time.monotonic()
        observer = self.stage.start(self.board)
        reserve = observer.look().counts.reserve
        self._make_files()
        flood_s = time.monotonic()
        self._publish_flood()
        self._play(observer, deadline_s=time.monotonic() + self._patience_s(observer))
        seconds = time.monotonic() - flood_s
        verdict = self._judge(observer)
        outcome = Outcome(
            tasks=self.tasks,
            done=len(self.flood & observer.progress.done),
            verdict=verdict,
            files_identical=self._compare_files(),
            kills=len(self.killed),
            seconds=seconds,
            total_seconds=time.monotonic() - began_s,
            reserve=reserve,
            idle_s=longest_idle_s(self.published, runs_from(observer.progress.records)),
        )
        outcome.broken = self._broken(outcome)
        return outcome

    def _publish_flood(self) -> None:
        """Publish the flood, the files spread over its first half."""
        # The tasks belong to this application; importing it is enough.
        import app.celery  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]
        from tasks.jobs.files import compress  # noqa: PLC0415 - after the stage has set the environment
        from tasks.jobs.loads import sleep  # noqa: PLC0415

        every = max(1, self.tasks // (2 * FILES))
        files = sorted(path.name for path in self.stage.jobs.iterdir())
        for number in range(self.tasks):
            if number % every == 0 and files:
                name = files.pop(0)
                self._send(compress, (name, "lzma" if len(files) % 2 else "gzip"))
            self.flood.add(self._send(sleep, (self.task_seconds,)))
        for name in files:
            self._send(compress, (name, "gzip"))
        self.board.scene.total = len(self.published) + CRITICAL
        self.board.event(f"{len(self.published)} tasks published, {FILES} of them files to compress")

    def _send(self, task: Any, arguments: tuple[Any, ...], queue: str = QUEUES[0]) -> str:
        at_s = time.time()
        name = str(task.apply_async(arguments, queue=queue).id)
        self.published.append(Published(name, queue, at_s))
        return name

    def _play(self, observer: Observer, deadline_s: float) -> None:
        """Watch, send the critical tasks, kill the pod, until all is done or time is up."""
        progress = observer.progress
        while time.monotonic() < deadline_s:
            self._report(observer)
            self.board.scene.done = len(progress.done & {message.task for message in self.published})
            share = len(self.flood & progress.done) / self.tasks
            if share >= CRITICAL_FROM:
                self._send_critical()
            if share >= KILL_FROM and not self.killed and len(self.stage.pods) > 1:
                self._kill_one(observer)
            self.board.scene.critical_ms = self._critical_ms(observer)
            update(self.board, observer, self.stage.pods, self.killed)
            if self._critical_sent == CRITICAL and self.board.scene.done == len(self.published):
                return
            time.sleep(LOOK_EVERY_S)
        self.board.event("time is up: not everything was done")

    def _report(self, observer: Observer) -> None:
        """Tell of the events that the tasks' new records show."""
        for record in observer.read_records():
            what, task, pod = record["what"], record["task"], record["pod"]
            if what == "start" and task == self._victims_task and pod not in self.killed:
                self.board.event(f"what the killed pod was running is started again on {pod}")
                self._victims_task = ""
            if what == "end" and record["name"].endswith(".compress") and task not in self._reported:
                self._reported.add(task)
                self.board.event(f"a file is compressed on {pod}")

    def _send_critical(self) -> None:
        """Send the next critical task when its time has come."""
        from tasks.jobs.loads import sleep  # noqa: PLC0415 - see _publish_flood

        if self._critical_sent == CRITICAL or time.monotonic() < self._critical_next_s:
            return
        self._critical_next_s = time.monotonic() + CRITICAL_EVERY_S
        self._critical_sent += 1
        self._send(sleep, (CRITICAL_SECONDS,), queue=QUEUES[1])
        self.board.event(f"critical task {self._critical_sent} of {CRITICAL} sent into the flood")

    def _kill_one(self, observer: Observer) -> None:
        """Kill a pod that has only just begun a normal task, so that it dies in the middle of it."""
        now_s = time.time()
        for pod, start in observer.progress.running.items():
            fresh = now_s - float(start["at"]) < max(self.task_seconds / 2, LOOK_EVERY_S)
            if pod in self.stage.pods and fresh and start["task"] in self.flood:
                self.stage.pods[pod].kill()
                self.killed.add(pod)
                self.board.scene.kills += 1
                self._victims_task = str(start["task"])
                self.board.event(f"{pod} is killed (SIGKILL) in the middle of a task, and not replaced")
                return

    def _critical_ms(self, observer: Observer) -> list[float]:
        started = observer.progress.started
        return [
            (started[message.task] - message.at_s) * 1000
            for message in self.published
            if message.queue == QUEUES[1] and message.task in started
        ]

    def _judge(self, observer: Observer) -> Verdict:
        """Weigh the witnesses, once the last acknowledgements are in."""
        remaining = observer.remaining()
        observer.read_records()
        settings = load_settings()
        return judge(
            journal=observer.journal(),
            published=self.published,
            records=observer.progress.records,
            ratio=settings.ratio,
            ttl_ms=settings.ttl_ms,
            remaining=remaining,
            critical_queue=QUEUES[1],
        )

    def _broken(self, outcome: Outcome) -> list[str]:
        broken = outcome.verdict.broken
        undone = len(self.published) - outcome.verdict.done
        if undone:
            broken.append(f"{undone} tasks not done in time")
        if outcome.files_identical != FILES:
            broken.append(f"{FILES - outcome.files_identical} files not as they were")
        if outcome.idle_s > IDLE_S:
            broken.append(f"nothing ran for {outcome.idle_s:.1f} s although work waited")
        late = [ms for ms in outcome.verdict.critical_ms if ms > CRITICAL_LATE_MS]
        if late and outcome.reserve:
            broken.append(f"{len(late)} critical tasks started late")
        return broken

    def _patience_s(self, observer: Observer) -> float:
        """Three times what the work needs on the pods that are left, and what a death costs."""
        capacity = max(1, observer.look().counts.capacity - 1)
        return 3 * (self.tasks * (self.task_seconds + 0.05) / capacity + CRITICAL * CRITICAL_EVERY_S) + 4 * TTL_S

    def _make_files(self) -> None:
        """Copy the largest modules of this Python's standard library: real files on any machine."""
        library = Path(sysconfig.get_path("stdlib"))
        largest = sorted(library.glob("*.py"), key=lambda path: path.stat().st_size)[-FILES:]
        for path in largest:
            shutil.copyfile(path, self.stage.jobs / path.name)

    def _compare_files(self) -> int:
        """How many files unpack to exactly the bytes that were packed."""
        identical = 0
        for source in self.stage.jobs.glob("*.py"):
            for ending, unpack in ((".gz", gzip.decompress), (".xz", lzma.decompress)):
                packed = source.with_name(source.name + ending)
                if packed.exists() and unpack(packed.read_bytes()) == source.read_bytes():
                    identical += 1
        return identical


def play(board: Board, *, tasks: int, pods: int, seconds: float) -> Outcome:
    """Run the demonstration from nothing to its outcome; everything it started is ended.

    Raises:
        ServerError, StartError, WaitError: the fleet could not be started.
    """
    settings = {
        "THROTTLE_TTL": f"{TTL_S:g}",
        "THROTTLE_JOURNAL": str(JOURNAL),
        "THROTTLE_FLEET": "demo",
        "PULSE_EVERY": "2",
    }
    try:
        with Stage(pods=pods, settings=settings) as stage:
            try:
                return Demo(stage, board, tasks=tasks, seconds=seconds).run()
            finally:  # after Ctrl-C too: it may take seconds
                board.scene.note = "ending the fleet"
                board.refresh()
    finally:
        board.scene.note = ""
