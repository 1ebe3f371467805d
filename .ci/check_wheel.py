"""Checks a built wheel, and that it works where it was installed.

Run as `python check_wheel.py REPOSITORY WHEEL` by the interpreter that the wheel was installed for, outside the
repository: a module that is found beside the source instead of in the wheel would prove nothing.
"""

import importlib.metadata
import sys
import zipfile
from pathlib import Path


def tracked_package_files(repository: Path) -> set[str]:
    """Every file of the library in the source tree, as the wheel should name it."""
    return {
        path.relative_to(repository).as_posix()
        for path in (repository / "throttle").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def complaints(repository: Path, wheel: Path) -> list[str]:
    """What is wrong with the wheel, one line each; empty when nothing is."""
    names = set(zipfile.ZipFile(wheel).namelist())
    found = [f"the wheel lacks {name}" for name in sorted(tracked_package_files(repository) - names)]
    found += [
        f"the wheel ships {name}"
        for name in sorted(names)
        if name.split("/")[0] != "throttle" and not name.split("/")[0].endswith(".dist-info")
    ]

    import throttle  # noqa: PLC0415 - after the wheel's own list was read, and only here

    origin = Path(str(throttle.__file__))
    if origin.is_relative_to(repository):
        found.append(f"throttle was imported from the source tree: {origin}")
    found += [f"import throttle pulls in {name}" for name in ("celery", "kombu") if name in sys.modules]
    commands = importlib.metadata.entry_points(group="celery.commands", name="throttle")
    if [point.value for point in commands] != ["throttle.commands:command"]:
        found.append("celery has no command `throttle`")
    if not callable(getattr(throttle, "install", None)):
        found.append("throttle.install is not callable")
    return found


def main() -> int:
    """Print what is wrong, or what was checked; the exit code is 1 when something is."""
    repository, wheel = Path(sys.argv[1]), Path(sys.argv[2])
    found = complaints(repository, wheel)
    for line in found:
        print(line)
    if not found:
        print(f"celery-headroom {importlib.metadata.version('celery-headroom')}: complete, imported, no Celery")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
