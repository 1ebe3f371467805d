"""Checks the object that `./run demo [shards] --json` prints last; reads that one line from standard input.

The demonstration judges what must never happen. Whether the fleet is also *at work* is judged here: one in which a
single pod does everything breaks no rule. The limits are generous, for a slow machine.
"""

import json
import statistics
import sys
from typing import Any

NONE_OF = ("lost", "violations", "requeues")
OTHERS = ("tasks", "done", "doubled", "critical_ms", "kills", "seconds")
NONE_OF_SHARDS = ("lost", "doubled", "out_of_order", "reshard_gap_ms")
OTHERS_OF_SHARDS = ("shards", "events", "identifies", "resumes", "takeover_ms", "gap_ms")
MOVED = 8
"""Shards that the killed and the drained pod held, at least."""
SLOWEST_S = 40
"""200 tasks of 0.3 s are 15 s on four pods, 20 s on three, and 60 s on one."""
SLOWEST_CRITICAL_MS = 150
"""Median. A critical task that waits for another task to end, though a pod is free, takes about 300."""


def main() -> int:
    """Print what is wrong with the object; the exit code is 1 when something is."""
    figures = json.load(sys.stdin)
    wrong = of_shards(figures) if sys.argv[1:] == ["shards"] else of_fleet(figures)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def of_shards(figures: dict[str, Any]) -> list[str]:
    """Of a bot's shards."""
    wrong = [f"{name} is missing" for name in (*NONE_OF_SHARDS, *OTHERS_OF_SHARDS) if name not in figures]
    wrong += [f"{name} is {figures[name]}, not 0" for name in NONE_OF_SHARDS if figures.get(name)]
    if not wrong and not (figures["events"] > MOVED <= figures["resumes"]):
        wrong.append(f"{figures['events']} events, {figures['resumes']} resumes: too few to show anything")
    return wrong


def of_fleet(figures: dict[str, Any]) -> list[str]:
    """Of a fleet under a flood."""
    wrong = [f"{name} is missing" for name in (*NONE_OF, *OTHERS) if name not in figures]
    wrong += [f"{name} is {figures[name]}, not 0" for name in NONE_OF if figures.get(name)]
    if not wrong and figures["kills"] < 1:
        wrong.append("no pod was killed, so nothing was shown")
    if not wrong and figures["seconds"] > SLOWEST_S:
        wrong.append(f"seconds is {figures['seconds']}, above {SLOWEST_S}: pods were idle while work was waiting")
    if not wrong and statistics.median(figures["critical_ms"]) > SLOWEST_CRITICAL_MS:
        wrong.append(f"critical_ms is {figures['critical_ms']}: critical work waited while a pod was free")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
