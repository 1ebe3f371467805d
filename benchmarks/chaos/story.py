"""What is told, and kept, about a fault of a soak: enough to follow it up without running it again.

Of each task concerned: when it was published, its runs, what befell its pods meanwhile, and the entries of the journal
about its takes. The journal does not name tasks; a run's record names its take, and so leads to them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from app.local.judge import Published
    from app.local.replay import Entry
    from benchmarks.chaos.hands import Harm

AROUND_S = 1.0
LINES = 60


class Story:
    """All that is known, to be told task by task. Times are seconds since the chaos began."""

    def __init__(
        self,
        *,
        began_s: float,
        published: Sequence[Published],
        records: Sequence[Mapping[str, Any]],
        journal: Sequence[Entry],
        harms: Sequence[Harm],
    ) -> None:
        """``began_s`` by this machine's clock, as all times here."""
        self._began_s = began_s
        self._published, self._records, self._journal, self._harms = published, records, journal, harms

    def of(self, task: str) -> list[str]:
        """What happened to one task, in the order of time."""
        lines = [(m.at_s, f"published to {m.queue}") for m in self._published if m.task == task]
        runs = [record for record in self._records if record["task"] == task]
        takes = {(str(record["pod"]), str(record["take"])) for record in runs}
        pods = {pod for pod, _ in takes}
        for record in runs:
            words = f"{record['what']} on {record['pod']} (take {record['take']}, attempt {record['attempt']})"
            lines.append((float(record["at"]), words))
        seqs: set[str] = set()
        for entry in self._journal:
            pod = entry.member.rpartition("#")[0]
            number = entry.fields.get("id", "")
            if (pod, number) in takes and entry.op == "take":
                seqs.add(entry.fields["seq"])
            if (pod, number) in takes or entry.fields.get("seq", "") in seqs:
                lines.append((entry.at_ms / 1000, f"journal: {described(entry)}"))
        if lines:
            first, last = min(lines)[0] - AROUND_S, max(lines)[0] + AROUND_S
            members = {entry.member for entry in self._journal if entry.member.rpartition("#")[0] in pods}
            lines += [
                (entry.at_ms / 1000, f"journal: {described(entry)}")
                for entry in self._journal
                if entry.op in ("join", "gone", "drain") and entry.member in members
                and first <= entry.at_ms / 1000 <= last
            ]  # fmt: skip
            lines += [
                (harm.from_s, f"{harm.kind} of {harm.pod or 'everybody'} for {harm.to_s - harm.from_s:.2f} s")
                for harm in self._harms
                if harm.pod in (*pods, "") and harm.to_s >= first and harm.from_s <= last
            ]
        told = [f"{at_s - self._began_s:8.3f} s  {words}" for at_s, words in sorted(lines)]
        return [f"task {task}:", *told[:LINES], *([f"... {len(told) - LINES} more"] if len(told) > LINES else [])]

    def keep(self, seed: int, logs: Path, deeds: Iterable[object]) -> Path:
        """Write everything to a folder that stays; returns it."""
        folder = Path(tempfile.mkdtemp(prefix=f"headroom-soak-{seed}-"))
        shutil.copytree(logs, folder / "logs")
        _write(folder / "published.jsonl", (message._asdict() for message in self._published))
        _write(folder / "records.jsonl", self._records)
        _write(folder / "journal.jsonl", ({**entry._asdict(), "fields": dict(entry.fields)} for entry in self._journal))
        _write(folder / "harms.jsonl", (vars(harm) for harm in self._harms))
        (folder / "deeds.txt").write_text("".join(f"{deed}\n" for deed in deeds))
        return folder


def described(entry: Entry) -> str:
    """An entry of the journal in one line."""
    return " ".join((entry.op, entry.member, *(f"{name}={value}" for name, value in entry.fields.items())))


def _write(path: Path, objects: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w") as out:
        for each in objects:
            out.write(json.dumps(each) + "\n")
