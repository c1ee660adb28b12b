"""A page of help, laid out as the parser lays out those of the other commands."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from textwrap import TextWrapper

WIDEST, NARROWEST = 78, 50
WIDEST_TERM = 30
GAP = 2
INDENT = "  "


class Page:
    """Written from top to bottom; `text` is what came of it."""

    def __init__(self) -> None:
        columns = shutil.get_terminal_size().columns
        self._width = max(min(columns - GAP, WIDEST), NARROWEST)
        self._indent = ""
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The page, without a newline at its end."""
        return "".join(self._pieces).rstrip("\n")

    def write(self, text: str) -> None:
        """As it is."""
        self._pieces.append(text)

    def write_usage(self, program: str, words: str, prefix: str = "Usage: ") -> None:
        """A line that says how the program is called."""
        self.write(f"{prefix}{program} {words}\n")

    def write_sentence(self, sentence: str) -> None:
        """A short paragraph of its own."""
        self.write(f"\n{INDENT}{sentence}\n")

    @contextmanager
    def section(self, heading: str) -> Iterator[None]:
        """What is written inside stands below this heading."""
        self.write(f"\n{heading}:\n")
        self._indent = INDENT
        yield
        self._indent = ""

    def write_dl(self, rows: Sequence[tuple[str, str]]) -> None:
        """Terms, and beside or below each what it means."""
        column = min(max(len(term) for term, _ in rows), WIDEST_TERM) + GAP
        wrapper = TextWrapper(max(self._width - column - GAP, 10), replace_whitespace=False)
        below = f"\n{self._indent}{'':{column}}"
        for term, meaning in rows:
            beside = f"{term:{column}}" if len(term) <= column - GAP else f"{term}{below}"
            self.write(f"{self._indent}{beside}{below.join(wrapper.wrap(meaning))}\n")
