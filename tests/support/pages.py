"""The part of a page that is written from a table of the tests: it stands between two marks, and a test compares it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Part(NamedTuple):
    """Where it stands. Raises `OSError` where the page cannot be read or written."""

    page: Path
    begin: str
    end: str

    def read(self) -> str:
        """What stands there."""
        return self._text().partition(self.begin)[2].partition(self.end)[0].strip()

    def write(self, content: str) -> None:
        """Put something there; the rest of the page stays."""
        before, _, rest = self._text().partition(self.begin)
        after = rest.partition(self.end)[2]
        self.page.write_text(f"{before}{self.begin}\n\n{content}\n\n{self.end}{after}", encoding="utf-8")

    def _text(self) -> str:
        return self.page.read_text(encoding="utf-8")
