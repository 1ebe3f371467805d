"""`throttle status`: the fleet in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from throttle.commands.lines import OneLine
from throttle.commands.printing import in_one_line, print_json
from throttle.commands.reaching import Reached, fleet
from throttle.dead import PRIORITY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from throttle.scripts import Operations

STEPS = (0, 3, 6, 9)
"""kombu's priorities on Redis, where the app names no others."""


@click.command("status", cls=OneLine)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def status(context: click.Context, *, as_json: bool) -> None:
    """Show the fleet in numbers: pods, capacity, and where messages are."""
    with fleet(context) as reached:
        found = figures(reached)
    if as_json:
        print_json(found)
        return
    queued: dict[str, int] = found.pop("queued")
    rows = [(name.replace("_", " "), in_one_line(str(value))) for name, value in found.items()]
    rows += [(f"queued in {in_one_line(name)}", str(length)) for name, length in queued.items()]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name.ljust(width)}  {value}")


def figures(reached: Reached) -> dict[str, Any]:
    """What `--json` prints. Four round trips."""
    app, operations = reached
    counts = operations.counts()
    return {
        "fleet": app.throttle.settings.fleet,
        "living": counts.alive,
        "draining": counts.draining,
        "silent": counts.silent,
        "busy": counts.busy,
        "capacity": counts.capacity,
        "reserve": counts.reserve,
        "waiting": counts.waiters,
        "parked": counts.parked,
        "dead": counts.dead,
        "queued": queued(app, operations),
    }


def queued(app: Any, operations: Operations) -> dict[str, int]:
    """Messages in each queue, all priorities together: the app's queues, and those that pods of the fleet wait for."""
    options: dict[str, Any] = app.conf.broker_transport_options or {}
    prefix, between = operations.keys.prefix, str(options.get("sep", PRIORITY))
    steps: Iterable[int] = options.get("priority_steps", STEPS)
    names = {*app.amqp.queues, *app.throttle.critical_queues}
    for lane in ("normal", "critical"):
        keys = cast("list[bytes]", operations.client.zrange(f"{operations.keys.namespace()}waited:{lane}", 0, -1))
        names |= {key.decode(errors="replace").removeprefix(prefix).partition(between)[0] for key in keys}
    lengths = dict.fromkeys(sorted(names - {""}), 0)
    with operations.client.pipeline(transaction=False) as pipe:
        asked = [(name, step) for name in lengths for step in steps]
        for name, step in asked:
            pipe.llen(f"{prefix}{name}{between}{step}" if step else f"{prefix}{name}")
        answers = pipe.execute(raise_on_error=False)
    for (name, _), answer in zip(asked, answers, strict=True):
        lengths[name] += answer if isinstance(answer, int) else 0  # an error: the name is no list's, and holds none
    return lengths
