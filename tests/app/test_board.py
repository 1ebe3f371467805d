"""The board shows what is there, as a picture in a terminal and as lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from app.local.board import Board, PodRow, Scene, line, render
from app.local.observe import View
from throttle.scripts import Counts

COUNTS = Counts(alive=5, busy=4, capacity=4, draining=0, silent=0, waiters=1, parked=0, dead=0)


@pytest.fixture
def scene() -> Scene:
    """A fleet in the middle of its work."""
    made = Scene("Headroom", total=205, done=80, kills=1, critical_ms=[12.4, 8.6], flower="http://127.0.0.1:5555/")
    made.view = View(COUNTS, queued={"task_queue": 120, "critical": 1}, held={"pod-1": 1})
    made.pods = [
        PodRow("pod-1", "busy", "sleep 0a1b2c3d", done=21),
        PodRow("pod-2", "busy", "sleep 4e5f6071", critical=True, done=20),
        PodRow("pod-3", "killed", done=9),
    ]
    return made


def drawn(scene: Scene, width: int = 100) -> str:
    output = io.StringIO()
    Console(file=output, width=width).print(render(scene))
    return output.getvalue()


def test_the_picture_shows_every_figure(scene: Scene) -> None:
    picture = drawn(scene)
    for shown in (
        "alive 5", "busy 4", "capacity 4", "reserve 1", "queued 121", "done 80", "kills 1", "80 of 205",
        "pod-1", "sleep 0a1b2c3d", "killed", "12 ms  9 ms", "http://127.0.0.1:5555/",
    ):  # fmt: skip
        assert shown in picture, picture


def test_the_picture_fits_a_narrow_terminal(scene: Scene) -> None:
    scene.events.append("an event that is far longer than such a terminal is wide " * 3)
    assert max(map(len, drawn(scene, width=60).splitlines())) <= 60


def test_an_empty_scene_can_be_drawn() -> None:
    assert "alive 0" in drawn(Scene("nothing yet"))


def test_a_line_shows_the_same(scene: Scene) -> None:
    assert line(scene).endswith("alive 5  busy 4  capacity 4  reserve 1  queued 121  done 80 of 205  critical 9 ms")


def test_without_a_terminal_events_and_lines_are_printed_plainly(scene: Scene) -> None:
    output = io.StringIO()
    with Board(Console(file=output, force_terminal=False), scene) as board:
        board.event("pod-3 is killed [not markup]")
        board.refresh()
        board.refresh()
    event, status = output.getvalue().splitlines()
    assert event.endswith("pod-3 is killed [not markup]")
    assert "alive 5" in status
    assert "\x1b" not in output.getvalue()


def test_in_a_terminal_the_picture_is_drawn(scene: Scene) -> None:
    output = io.StringIO()
    with Board(Console(file=output, force_terminal=True, width=100), scene) as board:
        board.event("something happened")
    assert "something happened" in output.getvalue()
    assert "alive" in output.getvalue()
