"""The board: a running fleet on one screen, drawn anew four times a second.

In a terminal it is a live picture. Where the output is no terminal (a pipe, a CI log) the same facts
come as plain lines, one a second and one for each event, so that nothing has to be guessed from a
silent log. What is drawn is a pure function of a :class:`Scene`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from app.local.observe import View

LINE_EVERY_S = 1.0
EVENTS_SHOWN = 6


@dataclass
class PodRow:
    """One pod on the board."""

    name: str
    state: str = "starting"
    """starting, free, busy, draining, silent (not beating, not yet believed dead), gone, killed."""
    running: str = ""
    critical: bool = False
    done: int = 0


@dataclass
class Scene:
    """Everything the board shows."""

    title: str
    total: int = 0
    done: int = 0
    view: View | None = None
    pods: list[PodRow] = field(default_factory=list[PodRow])
    critical_ms: list[float] = field(default_factory=list[float])
    kills: int = 0
    flower: str = ""
    note: str = ""
    events: deque[str] = field(default_factory=lambda: deque[str](maxlen=EVENTS_SHOWN))
    began_s: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the scene began."""
        return time.monotonic() - self.began_s


COLOURS = {"free": "green", "busy": "yellow", "draining": "cyan", "silent": "magenta", "killed": "red", "gone": "red"}


class Shown(Protocol):
    """What every scene has."""

    events: deque[str]

    @property
    def seconds(self) -> float:
        """Since it began."""
        ...


class Screen(ABC):
    """Shows something while the block runs; a context manager. What it shows is its subclass's."""

    def __init__(self, console: Console, shown: Shown) -> None:
        """Draw on ``console``: live in a terminal, in lines elsewhere."""
        self._console = console
        self._shown = shown
        self._live = Live(console=console, refresh_per_second=4, transient=False) if console.is_terminal else None
        self._last_line_s = 0.0

    def __enter__(self) -> Self:
        """Begin to draw."""
        if self._live is not None:
            self._live.start()
            self.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last picture on the screen."""
        if self._live is not None:
            self.refresh()
            self._live.stop()

    @abstractmethod
    def picture(self) -> RenderableType:
        """What a terminal shows now."""

    @abstractmethod
    def words(self) -> str:
        """The same in one line; empty while there is nothing to say."""

    def event(self, text: str) -> None:
        """Something happened: shown among the last events, or printed at once."""
        self._shown.events.append(f"{self._shown.seconds:6.1f} s  {text}")
        if self._live is None:
            self._print(self._shown.events[-1])

    def refresh(self) -> None:
        """Draw the scene as it is now; in lines at most once a second."""
        if self._live is not None:
            self._live.update(self.picture())
            return
        now = time.monotonic()
        if now - self._last_line_s >= LINE_EVERY_S and (words := self.words()):
            self._last_line_s = now
            self._print(words)

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class Board(Screen):
    """Shows a fleet at work."""

    def __init__(self, console: Console, scene: Scene) -> None:
        """Nothing is drawn before the block."""
        super().__init__(console, scene)
        self.scene = scene

    def picture(self) -> RenderableType:
        """See `render`."""
        return render(self.scene)

    def words(self) -> str:
        """See `line`."""
        return line(self.scene) if self.scene.view is not None else ""


def line(scene: Scene) -> str:
    """The scene in one line."""
    text = f"{scene.seconds:6.1f} s  "
    if scene.view is None:
        return text + (scene.note or "starting")
    counts = scene.view.counts
    text += f"alive {counts.alive}  busy {counts.busy}  capacity {counts.capacity}  reserve {counts.reserve}  "
    text += f"queued {sum(scene.view.queued.values())}  done {scene.done}"
    text += f" of {scene.total}" if scene.total else ""
    return text + (f"  critical {scene.critical_ms[-1]:.0f} ms" if scene.critical_ms else "")


def render(scene: Scene) -> RenderableType:
    """The scene as a picture."""
    parts: list[RenderableType] = [_numbers(scene)]
    if scene.total:
        bar = Table.grid(padding=(0, 2))
        bar.add_row(ProgressBar(total=scene.total, completed=scene.done, width=60), f"{scene.done} of {scene.total}")
        parts.append(bar)
    if scene.pods:
        parts.append(_pods(scene))
    if scene.critical_ms:
        shown = "  ".join(f"{ms:.0f} ms" for ms in scene.critical_ms[-10:])
        parts.append(Text.assemble(("critical, sent to started: ", "bold"), shown))
    parts += [Text(event, style="dim", overflow="ellipsis", no_wrap=True) for event in scene.events]
    if scene.flower:
        parts.append(Text.assemble(("Flower: ", "bold"), (scene.flower, "underline")))
    if scene.note:
        parts.append(Text(scene.note, style="italic"))
    return Panel(Group(*parts), title=scene.title, subtitle=f"{scene.seconds:.1f} s", width=84)


def _numbers(scene: Scene) -> Table:
    table = Table.grid(padding=(0, 3))
    counts = scene.view.counts if scene.view else None
    queued = sum(scene.view.queued.values()) if scene.view else 0
    shown = {
        "alive": counts.alive if counts else 0,
        "busy": counts.busy if counts else 0,
        "capacity": counts.capacity if counts else 0,
        "reserve": counts.reserve if counts else 0,
        "queued": queued,
        "done": scene.done,
        "kills": scene.kills,
    }
    table.add_row(*[Text.assemble((f"{name} ", "bold"), str(value)) for name, value in shown.items()])
    return table


def _pods(scene: Scene) -> Table:
    table = Table(box=None, padding=(0, 2), show_edge=False)
    for heading in ("pod", "state", "done", "runs"):
        table.add_column(heading, justify="right" if heading == "done" else "left")
    for pod in scene.pods:
        running = Text(pod.running, style="bold red" if pod.critical else "")
        table.add_row(pod.name, Text(pod.state, style=COLOURS.get(pod.state, "")), str(pod.done), running)
    return table
