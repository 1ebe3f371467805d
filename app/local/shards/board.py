"""A bot's shards on one screen: who holds which, what the target is, what happened, and what consumers heard."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from app.local.board import EVENTS_SHOWN, Screen

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tasks.shards.answers import Looked

COLOURS = {"ready": "green", "initialising": "yellow", "handoff": "cyan", "orphan": "red"}
NOBODY = "nobody"


@dataclass
class BotScene:
    """Everything the board shows."""

    title: str
    looked: Looked | None = None
    pods: dict[str, str] = field(default_factory=dict[str, str])
    """Pod -> what is known of it: starting, holds shards, killed, draining, gone."""
    told: int = 0
    heard: int = 0
    note: str = ""
    events: deque[str] = field(default_factory=lambda: deque[str](maxlen=EVENTS_SHOWN))
    began_s: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the scene began."""
        return time.monotonic() - self.began_s

    def shards_of(self) -> dict[str, list[tuple[int, int, str]]]:
        """Pod -> (version, shard, state) of each bind that is its own; what nobody holds under `NOBODY`."""
        found: dict[str, list[tuple[int, int, str]]] = {name: [] for name in self.pods}
        for (version, shard), bind in sorted(self.looked.view.binds.items()) if self.looked else ():
            pod = bind.member.partition("#")[0] if bind.held else NOBODY
            found.setdefault(pod, []).append((version, shard, bind.state))
        return found


class BotBoard(Screen):
    """Shows a bot's cluster."""

    def __init__(self, console: Console, scene: BotScene) -> None:
        """Nothing is drawn before the block."""
        super().__init__(console, scene)
        self.scene = scene

    def picture(self) -> RenderableType:
        """See `render`."""
        return render(self.scene)

    def words(self) -> str:
        """See `line`."""
        return line(self.scene)


def line(scene: BotScene) -> str:
    """The scene in one line; empty before there is a target."""
    looked = scene.looked
    if looked is None or not (looked.head.active or looked.head.pending):
        return ""
    shown = {pod: len(shards) for pod, shards in scene.shards_of().items() if shards}
    held = "  ".join(f"{pod} {count}" for pod, count in shown.items())
    return f"{scene.seconds:6.1f} s  {_targets(looked)}  {held}  events {scene.heard} of {scene.told}"


def render(scene: BotScene) -> RenderableType:
    """The scene as a picture."""
    head = Table.grid(padding=(0, 3))
    head.add_row(
        Text.assemble(("target ", "bold"), _targets(scene.looked) if scene.looked else "none yet"),
        Text.assemble(("events heard ", "bold"), f"{scene.heard} of {scene.told}"),
    )
    parts: list[RenderableType] = [head, _pods(scene)]
    parts += [Text(event, style="dim", overflow="ellipsis", no_wrap=True) for event in scene.events]
    if scene.note:
        parts.append(Text(scene.note, style="italic"))
    return Panel(Group(*parts), title=scene.title, subtitle=f"{scene.seconds:.1f} s", width=96)


def _targets(looked: Looked) -> str:
    active, pending = looked.head.active, looked.head.pending
    words = f"{active.total} shards" if active else "no shards"
    return words + (f", {pending.total} pending" if pending else "")


def _pods(scene: BotScene) -> Table:
    table = Table(box=None, padding=(0, 2), show_edge=False)
    for heading in ("pod", "", "shards"):
        table.add_column(heading)
    newest = max((version for version, _ in scene.looked.view.binds), default=0) if scene.looked else 0
    for pod, shards in scene.shards_of().items():
        cells = Text()
        for version, shard, state in shards:
            old = " dim" if version < newest else ""
            cells.append(f"{shard} ", style=COLOURS[state] + old)
        table.add_row(pod, scene.pods.get(pod, ""), cells)
    return table
