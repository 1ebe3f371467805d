"""``python -m app``: starts the command line (`app.command_line`), which has the commands and the exit codes.

Alone in its file, and with nothing but Python's own modules, so that a person who calls it outside of the environment,
where the packages are, reads one line instead of a traceback.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parents[1]
OURS = ("app", "tasks", "throttle")
MISSING, INTERRUPTED = 1, 130
"""Exit codes where a package is missing, and where Ctrl-C comes before there is a command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. A missing package is one line on standard error."""
    try:
        from app import command_line  # noqa: PLC0415 - see the module

        return command_line.main(arguments)
    except ModuleNotFoundError as error:
        package, _, module = (error.name or "").partition(".")
        if package in OURS and (HERE / package).is_dir() and module != "local":
            raise  # a fault of ours, and no package of others
        sys.stderr.write(f"headroom: {_what_is_missing(package, module)}\n")
        return MISSING
    except KeyboardInterrupt:  # while packages are imported; later ones are the command's
        sys.stderr.write("interrupted; nothing was started\n")
        return INTERRUPTED


def _what_is_missing(package: str, module: str) -> str:
    if (package, module) == ("app", "local"):
        return "demo and up are not part of an image: they run where the repository is, as ./run demo and ./run up"
    if package in OURS:
        return f"the package {package} is not beside {HERE / 'app'}, where it belongs: copy the whole repository"
    missing = f"{sys.executable} has no package {package}"
    if not (HERE / "run").exists():
        return f"{missing}: pip install {package}"
    python = HERE / ".venv" / "bin" / "python"
    if Path(sys.prefix) == python.parents[1]:
        return f"{missing}: {HERE / 'run'} install brings it"
    first = "" if python.exists() else f"{HERE / 'run'} install makes an environment that has it; then "
    return f"{missing}: {first}call {python} -m app in its place"


if __name__ == "__main__":
    sys.exit(main())
