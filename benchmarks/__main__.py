"""The command line of the benchmarks: ``python -m benchmarks NAME [options] [--json]``.

Exit codes: 0 every binding target was met, 1 one was missed or the fleet could not be started, 2 an
argument is wrong, 130 interrupted.
"""

from __future__ import annotations

import importlib
import signal
import sys
from typing import TYPE_CHECKING, Any

from app.local.processes import StartError
from app.local.servers import ServerError
from app.local.waiting import WaitError
from benchmarks.arguments import Parser
from benchmarks.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = (
    "loss",
    "saturation",
    "overhead",
    "foreign",
    "recovery",
    "flood",
    "soak",
    "waiters",
    "probes",
    "restarts",
    "beat",
    "shards-failover",
    "shards-reshard",
    "shards-deploy",
)
INTERRUPTED = 130


def listing() -> str:
    """The benchmarks with one line each."""
    lines = [f"  {name:<17}{_module(name).SUMMARY}" for name in NAMES]
    return "\n".join(["benchmarks:", *lines, "each with its own --help"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(listing())
        return 0
    name, *rest = given
    if name not in NAMES:
        sys.stderr.write(f"benchmarks: there is no benchmark {name!r}; there are {', '.join(NAMES)}\n")
        return 2
    module = _module(name)
    parser = Parser(name, module.__doc__)
    module.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the JSON line alone, and all else to stderr")
    options = parser.parse_args(rest)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return int(module.run(options, Report(f"{name}: {module.SUMMARY}", quiet=options.json)))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; everything that was started is ended\n")
        return INTERRUPTED
    except (ServerError, StartError, WaitError) as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return 1


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name.replace('-', '_')}")


def _interrupt(*_: object) -> None:
    """Treat SIGTERM as Ctrl-C: the blocks that hold a fleet are left in order."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
