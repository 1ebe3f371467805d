"""`throttle dead ...`: read dead letters, send them on their way again, drop them.

Letters are named by their ID or by the id of their task, or chosen by options. Which letters a choice means is settled
before the first is moved, so what dies again meanwhile is not sent back a second time.
"""

from __future__ import annotations

import base64
import getpass
import socket
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from throttle.commands.lines import OneLineGroup
from throttle.commands.printing import columns, in_one_line, plain, print_json, print_json_list, when
from throttle.commands.reaching import ASKED_WRONGLY, UNDONE, complain, fleet, refuse
from throttle.dead import DeadLetters, Letter, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HEAD = ("ID", "DIED", "DELIVERIES", "QUEUE", "TASK", "REASON")


class Choice(NamedTuple):
    """Which letters, by what they say; each a shell pattern, None for any."""

    task: str | None
    reason: str | None
    queue: str | None

    def fits(self, letter: Letter) -> bool:
        """Whether a letter is meant."""
        said = (letter.task, letter.reason, letter.queue)
        return all(pattern is None or fnmatchcase(text, pattern) for text, pattern in zip(said, self, strict=True))

    @property
    def narrows(self) -> bool:
        """Whether it is a choice at all."""
        return any(pattern is not None for pattern in self)


def choosing(function: Callable[..., None]) -> Callable[..., None]:
    """Options that choose letters."""
    for name, example in (("queue", "cel*"), ("reason", "unknown task*"), ("task", "shop.*")):
        what = f"Those of this {name}; a pattern such as '{example}' too."
        function = click.option(f"--{name}", metavar=name.upper(), help=what)(function)
    return function


naming = click.argument("ids", nargs=-1, metavar="[ID]...")
in_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("dead", cls=OneLineGroup, no_args_is_help=True)
def dead() -> None:
    """Look at dead letters, requeue them, drop them.

    A message becomes a dead letter when it was delivered too often to pods that died over it, when its task rejected it
    for good, or when nobody can read or run it. An ID is a letter's, or that of its task.
    """


@dead.command("list")
@choosing
@in_json
@click.pass_context
def list_(context: click.Context, *, task: str | None, reason: str | None, queue: str | None, as_json: bool) -> None:
    """List dead letters, the oldest first."""
    chosen = Choice(task, reason, queue)
    with fleet(context) as reached:
        letters = (letter for letter in DeadLetters(reached.operations) if chosen.fits(letter))
        if as_json:
            print_json_list(map(summary, letters))
            return
        lines = columns(HEAD, map(row, letters))
        first, second = next(lines), next(lines, "")
        click.echo(f"{first}\n{second}" if second else "no dead letters", err=not second)
        for line in lines:
            click.echo(line)


@dead.command("show")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@in_json
@click.pass_context
def show(context: click.Context, *, ids: tuple[str, ...], as_json: bool) -> None:
    """Show dead letters with the history of their deliveries."""
    with fleet(context) as reached:
        letters, unknown = DeadLetters(reached.operations).find(ids)
        if as_json:
            print_json_list(summary(letter) | content(letter) for letter in letters)
        else:
            click.echo("\n\n".join("\n".join(story(letter)) for letter in letters), nl=bool(letters))
    end_with(context, [Outcome(name, UNKNOWN) for name in unknown])


@dead.command("requeue")
@naming
@choosing
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.option("--tail", is_flag=True, help="To the tails of their queues, behind what waits there, not to the heads.")
@in_json
@click.pass_context
def requeue(context: click.Context, *, every: bool, tail: bool, as_json: bool, **named: Any) -> None:
    """Put dead letters back to the heads of their queues, to be tried as often as a new message.

    The oldest of them comes first. Their history is kept.
    """
    with fleet(context) as reached:
        letters = DeadLetters(reached.operations)
        ids, unknown = chosen_ids(letters, every=every, **named)
        outcomes = letters.requeue(ids, tail=tail, by=who())
    report(context, "requeued", outcomes, unknown, as_json=as_json)


@dead.command("drop")
@naming
@choosing
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@in_json
@click.pass_context
def drop(context: click.Context, *, every: bool, yes: bool, as_json: bool, **named: Any) -> None:
    """Delete dead letters for good. Asks before it drops what was not named one by one."""
    with fleet(context) as reached:
        letters = DeadLetters(reached.operations)
        ids, unknown = chosen_ids(letters, every=every, **named)
        if ids and not named["ids"] and not yes:
            agree(len(ids))
        outcomes = letters.drop(ids)
    report(context, "dropped", outcomes, unknown, as_json=as_json)


# ---------------------------------------------------------------- which letters


UNKNOWN = "no dead letter has this ID, and none is of a task with it"


def chosen_ids(
    letters: DeadLetters,
    *,
    ids: tuple[str, ...],
    every: bool,
    task: str | None,
    reason: str | None,
    queue: str | None,
) -> tuple[list[str], list[str]]:
    """IDs of the letters that are meant, and references that lead to none."""
    chosen = Choice(task, reason, queue)
    if bool(ids) + every + chosen.narrows != 1:
        message = "which dead letters? allowed are IDs, or --task, --reason and --queue, or --all"
        refuse(message, ASKED_WRONGLY)
    if ids:
        found, unknown = letters.find(ids)
        return [letter.id for letter in found], unknown
    return [letter.id for letter in letters if chosen.fits(letter)], []


def agree(count: int) -> None:
    """Ask before `count` letters are dropped; ends the command where the answer is not yes."""
    letters = "1 dead letter" if count == 1 else f"{count} dead letters"
    try:
        if click.confirm(f"drop {letters} for good?", err=True):
            return
    except click.Abort:
        click.echo(err=True)
    refuse("nothing was dropped; --yes drops without asking", UNDONE)


def who() -> str:
    """Who asks, for the history of a letter."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user often has no name
        name = "somebody"
    return f"{name}@{socket.gethostname()}"


def report(
    context: click.Context, done: str, outcomes: Sequence[Outcome], unknown: Sequence[str], *, as_json: bool
) -> None:
    """Say what became of the letters, one line for each that is where it was."""
    failed = [*(o for o in outcomes if o.error), *(Outcome(name, UNKNOWN) for name in unknown)]
    moved = [o.id for o in outcomes if not o.error]
    if as_json:
        print_json({done: moved, "failed": [failure._asdict() for failure in failed]})
    else:
        click.echo(f"{done} {len(moved)}")
    end_with(context, failed)


def end_with(context: click.Context, failed: Sequence[Outcome]) -> None:
    """One line for each that failed, and the exit code."""
    for failure in failed:
        complain(f"{in_one_line(failure.id)}: {in_one_line(failure.error)}")
    context.exit(UNDONE if failed else 0)


# ---------------------------------------------------------------- what a letter says


def row(letter: Letter) -> tuple[str, ...]:
    """A letter as a line of the list."""
    cells = (when(letter.at_ms), str(letter.deliveries), letter.queue, letter.task or "?", letter.reason)
    return (letter.id, *map(in_one_line, cells))


def summary(letter: Letter) -> dict[str, Any]:
    """A letter as an object of the list."""
    return {
        "id": letter.id,
        "died": when(letter.at_ms),
        "deliveries": letter.deliveries,
        "queue": letter.queue,
        "task": letter.task,
        "task_id": letter.task_id,
        "reason": letter.reason,
        "member": letter.member,
    }


def content(letter: Letter) -> dict[str, Any]:
    """What only `show` tells: the history, and the message; as base64 where it is no JSON."""
    history = [
        {"at": when(failure.at_ms), "member": failure.member, "why": failure.why, "text": failure.text}
        for failure in letter.history
    ]
    message = letter.message
    if message is None:
        return {"history": history, "message_base64": base64.b64encode(letter.raw).decode()}
    return {"history": history, "message": message}


def story(letter: Letter) -> Iterator[str]:
    """Lines that tell of a letter."""
    yield f"dead letter {letter.id}"
    for name, value in (
        ("task", f"{letter.task or '?'} {letter.task_id}"),
        ("arguments", letter.arguments or "?"),
        ("queue", letter.queue),
        ("died", f"{when(letter.at_ms)}, held by {letter.member or 'nobody'}"),
        ("deliveries", f"{letter.deliveries}"),
        ("reason", letter.reason),
        ("message", f"{len(letter.raw)} bytes (--json prints it)"),
    ):
        yield f"  {name:<10}  {in_one_line(value)}"
    for failure in letter.history:
        yield f"  {when(failure.at_ms)}  {in_one_line(failure.why)}  {in_one_line(failure.member)}".rstrip()
        yield from (f"      {line}" for line in plain(failure.text).splitlines())
