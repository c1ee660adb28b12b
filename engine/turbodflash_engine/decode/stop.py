"""Where an answer stops, and which of its text may be shown already."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Protocol


class Detokenizer(Protocol):
    """Whole characters from tokens as they come."""

    def push(self, token: int, /) -> str: ...

    def flush(self) -> str: ...


class StopStrings:
    """A stream of text that ends before the first of some strings, across any pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        """stops: none of them empty."""
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """The text that may be shown now: what could still begin a stop string is held back."""
        held = self._held + text
        starts = [start for stop in self._stops if (start := held.find(stop)) >= 0]
        if starts:
            self.found, self._held = True, ""
            return held[: min(starts)]
        free = len(held) - begun(held, self._stops)
        self._held = held[free:]
        return held[:free]

    def flush(self) -> str:
        """What was held back: no further text will come."""
        held, self._held = self._held, ""
        return held


def begun(text: str, marks: Sequence[str]) -> int:
    """Length of the longest end of the text that is the beginning, not all, of a mark."""
    longest = max(map(len, marks), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        end = text[-length:]
        if any(mark.startswith(end) for mark in marks):
            return length
    return 0


class Ending:
    """Decides token by token whether the answer is over, and gathers its text.

    reason: "" while it goes on, then "stop", "reverse-prompt" or the limit's name.
    left: tokens that may still come.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        *,
        eog: Container[int],
        stops: Sequence[str] = (),
        left: int,
        limit: str,
        show_eog: bool = False,
    ) -> None:
        """limit: the reason when `left` tokens have come: "length" or "context"."""
        self.left = left
        self.reason = "" if left > 0 else limit
        self._limit = limit
        self._eog = eog
        self._show_eog = show_eog
        self._detokenizer = detokenizer
        self._stops = StopStrings(stops)
        self._text: list[str] = []

    def take(self, token: int) -> bool:
        """One more token has come; whether it is the last."""
        self.left -= 1
        ends = token in self._eog
        if not ends or self._show_eog:
            self._text.append(self._stops.push(self._detokenizer.push(token)))
        if ends:
            self.reason = "stop"
        elif self._stops.found:
            self.reason = "reverse-prompt"
        elif self.left <= 0:
            self.reason = self._limit
        return bool(self.reason)

    def text(self) -> str:
        """The text that may be shown since the last call; all that is left when it is over."""
        if self.reason and not self._stops.found:
            self._text.append(self._stops.push(self._detokenizer.flush()))
            self._text.append(self._stops.flush())
        text = "".join(self._text)
        self._text.clear()
        return text
