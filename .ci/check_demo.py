"""Checks the object that `./run demo --json` prints last; reads that one line from standard input."""

import json
import sys

NONE_OF = ("lost", "violations", "requeues")
OTHERS = ("tasks", "done", "doubled", "critical_ms", "kills", "seconds")


def main() -> int:
    """Print what is wrong with the object; the exit code is 1 when something is."""
    figures = json.load(sys.stdin)
    wrong = [f"{name} is missing" for name in (*NONE_OF, *OTHERS) if name not in figures]
    wrong += [f"{name} is {figures[name]}, not 0" for name in NONE_OF if figures.get(name)]
    if not wrong and figures["kills"] < 1:
        wrong.append("no pod was killed, so nothing was shown")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
