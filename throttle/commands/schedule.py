"""`throttle schedule`: which beat leads, who stands by, and when each entry ran and will run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from throttle.commands.lines import OneLine
from throttle.commands.printing import columns, in_one_line, print_json, when
from throttle.commands.reaching import fleet
from throttle.schedule import look

if TYPE_CHECKING:
    from throttle.schedule import Look

HEAD = ("entry", "schedule", "last due", "ran", "runs", "next due")


@click.command("schedule", cls=OneLine)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def schedule(context: click.Context, *, as_json: bool) -> None:
    """Show which beat leads the schedule, which stand by, and the last and next run of each entry."""
    with fleet(context) as reached:
        found = figures(look(reached.operations))
    if as_json:
        print_json(found)
        return
    leader = f"{in_one_line(found['leader'])} since {found['since']}" if found["leader"] else "nobody"
    click.echo(f"leads      {leader}")
    click.echo(f"stands by  {', '.join(map(in_one_line, found['standbys'])) or 'nobody'}")
    rows = [
        [
            in_one_line(name),
            in_one_line(entry["schedule"]),
            *(str(entry[key.replace(" ", "_")] or "-") for key in HEAD[2:]),
        ]
        for name, entry in found["entries"].items()
    ]
    for line in columns(HEAD, rows):
        click.echo(line)


def figures(seen: Look) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "leader": seen.leader or None,
        "since": _when(seen.since_us),
        "standbys": list(seen.standbys),
        "entries": {
            name: {
                "schedule": record.digest,
                "last_due": _when(record.last_us),
                "ran": _when(record.ran_us),
                "runs": record.runs,
                "next_due": _when(record.due_us),
            }
            for name, record in sorted(seen.records.items())
        },
    }


def _when(us: int) -> str | None:
    return when(us // 1000) if us else None
