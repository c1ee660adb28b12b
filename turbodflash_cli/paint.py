"""Events of the engine, on a terminal or in a pipe."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from turbodflash_cli.progress import Bar
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import Progress, Text

START_THINKING = "[Start thinking]\n"
END_THINKING = "\n[End thinking]\n\n"


class Paint(Protocol):
    """Shows an answer while it is made."""

    def text(self, event: Text) -> None:
        """A piece of the answer, or of the thinking."""

    def progress(self, event: Progress) -> None:
        """How far the prompt has come."""

    def end(self) -> None:
        """Nothing more comes."""


class Manner(NamedTuple):
    """How an answer is shown.

    thoughts: written, between marks and faint. newline: end the answer with one if it has none.
    """

    thoughts: bool
    newline: bool


class Silent:
    """Collect only: the answer goes into a JSON object."""

    def __init__(self, terminal: Terminal) -> None:
        self._bar = Bar(terminal)

    def text(self, event: Text) -> None:
        """Nothing is shown."""
        self._bar.clear()

    def progress(self, event: Progress) -> None:
        """The bar of a long prompt."""
        self._bar(event)

    def end(self) -> None:
        """Leave no bar behind."""
        self._bar.clear()


class Aloud:
    """Text to stdout as it comes."""

    def __init__(self, terminal: Terminal, manner: Manner) -> None:
        self._terminal = terminal
        self._manner = manner
        self._bar = Bar(terminal)
        self._thinking = False

    def text(self, event: Text) -> None:
        """A piece of the answer, or of the thinking."""
        self._bar.clear()
        if event.thought and not self._manner.thoughts:
            return
        self._turn_to(event.thought)
        self._terminal.write(event.piece)

    def progress(self, event: Progress) -> None:
        """The bar of a long prompt."""
        self._bar(event)

    def end(self) -> None:
        """Close what is open."""
        self._bar.clear()
        self._turn_to(False)
        if self._manner.newline:
            self._terminal.end_line()

    def _turn_to(self, thinking: bool) -> None:
        if thinking == self._thinking:
            return
        self._thinking = thinking
        if thinking:
            self._terminal.dim(True)
            self._terminal.write(START_THINKING)
        else:
            self._terminal.write(END_THINKING)
            self._terminal.dim(False)
