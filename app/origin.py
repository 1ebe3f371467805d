"""Refuses to run when ``tasks`` or ``app`` is somebody else's package.

Both names are common. With another folder earlier on ``PYTHONPATH``, or another distribution that
installs a top-level ``tasks``, a worker would start, consume this fleet's queues and know none of its
tasks: every message would be thrown away as unknown. So the origin is looked at before anything runs.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from throttle.errors import ConfigurationError

HERE = Path(__file__).resolve().parents[1]
OURS = ("app", "tasks")


def check_origin(root: Path = HERE, names: tuple[str, ...] = OURS) -> None:
    """Check that each of our packages comes from the folder that this file comes from.

    Raises:
        ConfigurationError: one does not, or there is none; the line names both folders.
    """
    for name in names:
        spec = importlib.util.find_spec(name)
        places = [Path(place).resolve() for place in (spec.submodule_search_locations or ())] if spec else []
        if not places and spec is not None and spec.origin is not None:
            places = [Path(spec.origin).resolve()]
        if places != [root / name]:
            found = ", ".join(str(place) for place in places) or "nowhere"
            raise ConfigurationError(
                f"the package {name!r} comes from {found}, not from {root}: "
                f"put {root} first on PYTHONPATH, and no other {name!r} beside it"
            )
