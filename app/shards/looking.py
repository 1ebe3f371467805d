"""What `shards` shows of a bot's cluster: figures for programs, and the same as tables for people. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tasks.shards.placement import UNLIMITED, cap
from throttle.commands.printing import columns, in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.shards.answers import Looked, Target

VERSION = re.compile(r"v[0-9]+")


def figures(bot: str, looked: Looked) -> dict[str, Any]:
    """What `--json` prints."""
    head, view = looked.head, looked.view
    held = [bind.member for bind in view.binds.values() if bind.held]
    roles = {target.version: role for target, role in ((head.active, "active"), (head.pending, "pending")) if target}
    return {
        "bot": bot,
        "epoch": head.epoch,
        "active": _target(head.active, looked),
        "pending": _target(head.pending, looked),
        "whole": _whole(looked),
        "guard_ms": head.guard_ms,
        "guarded": looked.guarded,
        "note": looked.note,
        "stopped": [
            {
                "what": f"version {stop.scope[1:]}" if VERSION.fullmatch(stop.scope) else "credentials",
                "code": stop.code,
                "why": stop.why,
                "since_ms": stop.at_ms,
            }
            for stop in head.stops
        ],
        "budget": _budget(looked),
        "pods": [
            {
                "pod": member.name.partition("#")[0],
                "member": member.name,
                "shards": held.count(member.name),
                "limit": None if member.limit >= UNLIMITED else member.limit,
                "draining": member.draining,
            }
            for member in sorted(view.members)
        ],
        "shards": [
            {
                "target": roles.get(version, "old"),
                "version": version,
                "shard": shard,
                "total": view.totals.get(version),
                "state": bind.state,
                "pod": bind.member.partition("#")[0],
                "fence": bind.fence,
            }
            for (version, shard), bind in sorted(view.binds.items())
        ],
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The figures as a person reads them."""
    guard = f"{found['guard_ms'] / 1000:.1f} s more: {found['guarded']}" if found["guard_ms"] else "off"
    for name, value in (
        ("target", _words(found["active"]) or "none yet"),
        ("pending", _words(found["pending"]) or "none"),
        ("guard", guard),
        ("identifies", _identifies(found["budget"])),
        ("last", found["note"] or "nothing yet"),
        *(("stopped", _stopped(stop)) for stop in found["stopped"]),
    ):
        yield f"{name:10}  {in_one_line(value)}"
    yield ""
    yield from columns(
        ("pod", "shards", "limit", ""),
        [
            (
                in_one_line(pod["pod"]),
                str(pod["shards"]),
                "" if pod["limit"] is None else str(pod["limit"]),
                "draining" if pod["draining"] else "",
            )
            for pod in found["pods"]
        ],
    )
    yield ""
    names = ("shard", "total", "target", "state", "pod", "fence")
    rows = [tuple(in_one_line(str(shard[name])) for name in names) for shard in found["shards"]]
    yield from columns(("shard", "of", "target", "state", "pod", "fence"), rows)


def _whole(looked: Looked) -> bool:
    """Whether each shard of the active target is ready, and no other target is under way."""
    active = looked.head.active
    return active is not None and looked.head.pending is None and _ready(active, looked) == active.total


def _ready(target: Target, looked: Looked) -> int:
    return sum(v == target.version and bind.state == "ready" for (v, _), bind in looked.view.binds.items())


def _target(target: Target | None, looked: Looked) -> dict[str, Any] | None:
    if target is None:
        return None
    pods = sum(not member.draining for member in looked.view.members)
    return {
        "total": target.total,
        "version": target.version,
        "ready": _ready(target, looked),
        "cap": cap(target.total, pods),
        "since_ms": target.since_ms,
        "by": target.by,
    }


def _budget(looked: Looked) -> dict[str, int] | None:
    budget, now_ms = looked.budget, looked.head.now_ms
    if budget is None:
        return None
    over = budget.reset_at_ms <= now_ms  # the day is over, and the next identify begins another
    return {
        "total": budget.total,
        "remaining": budget.total if over else budget.remaining,
        "reset_after_ms": max(0, budget.reset_at_ms - now_ms),
        "concurrency": budget.concurrency,
    }


def _words(target: dict[str, Any] | None) -> str:
    if target is None:
        return ""
    by = ", set by a person" if target["by"] == "person" else ""
    about = f"version {target['version']}, cap {target['cap']} a pod{by}"
    return f"{target['total']} shards, {target['ready']} ready ({about})"


def _stopped(stop: dict[str, Any]) -> str:
    tried, then = stop["what"], "until there is another target, or `shards retry`"
    if tried == "credentials":
        tried, then = "these credentials", "put it right, then `shards retry`"
    return f"{tried}, by Discord: {stop['why']}; {then}"


def _identifies(budget: dict[str, int] | None) -> str:
    if budget is None:
        return "unknown: no pod has asked Discord yet"
    hours = budget["reset_after_ms"] / 3_600_000
    return f"{budget['remaining']} of {budget['total']} left for {hours:.1f} h, {budget['concurrency']} at a time"
