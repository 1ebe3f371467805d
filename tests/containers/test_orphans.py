"""What the first process reaps, and what it leaves to others. Real zombies: children of this very process."""
# pyright: basic

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from billiard import context

from app.container.steps import Orphans, pool_children, state_of, zombies_of
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


def zombie() -> int:
    """A child that ended and that nobody waits for, as one that a dead parent left behind."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)
    wait_until(lambda: pid in zombies_of(os.getpid()), what="the child to end")
    return pid


@pytest.fixture
def orphans() -> Iterator[Orphans]:
    """The step; what it leaves is collected afterwards."""
    before = zombies_of(os.getpid())
    yield Orphans(SimpleNamespace())
    for pid in zombies_of(os.getpid()) - before:
        os.waitpid(pid, 0)


def test_a_zombie_is_reaped_at_its_second_turn(orphans: Orphans) -> None:
    pid = zombie()
    orphans.turn()
    assert state_of(pid) == ("Z", os.getpid())
    orphans.turn()
    assert state_of(pid) == ("", 0)


def test_a_child_of_celerys_pool_is_left_to_the_pool(orphans: Orphans) -> None:
    child = context.ForkContext().Process(target=sys.exit, args=(3,))
    child.start()
    wait_until(lambda: child.pid in zombies_of(os.getpid()), what="the pool's child to end")
    for _ in range(3):
        orphans.turn()
    assert child.pid in pool_children()
    child.join()
    assert child.exitcode == 3


def test_whoever_waits_for_a_child_of_his_own_gets_its_exit_code(orphans: Orphans) -> None:
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    wait_until(lambda: child.pid in zombies_of(os.getpid()), what="the child to end")
    orphans.turn()
    assert child.wait() == 3
    orphans.turn()


def test_a_process_that_is_not_the_first_one_has_no_such_step(orphans: Orphans) -> None:
    assert orphans.include_if(SimpleNamespace()) is False


def test_a_name_with_parentheses_does_not_confuse_it() -> None:
    program = "import sys; open('/proc/self/comm', 'w').write('a) Z (1'); print('named', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"named\n"
        state, parent = state_of(child.pid)
        assert state in ("R", "S")
        assert parent == os.getpid()
        child.communicate()
