"""Thoughts and answer told apart, by the marks that a model writes around its thoughts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from turbodflash_engine.decode.stop import begun
from turbodflash_engine.events import Text
from turbodflash_engine.tokenizer.marks import Marks


class Thoughts:
    """A stream of text that may begin with a thought, and with some models go back to thinking.

    The marks, and blanks right after one, are nobody's text. Where thoughts come first, a mark in
    the middle of an answer is text like any other.
    """

    def __init__(
        self, marks: Marks | None, *, thinking: bool = False, answering: bool = False
    ) -> None:
        """marks: None = all is answer. thinking, answering: which of them has begun, if any has."""
        self._marks = marks
        self.thinking = marks is not None and thinking
        self._begins = marks is not None and not (thinking or answering)
        self._after_mark = self.thinking
        self._held = ""

    @classmethod
    def after(cls, prompt: str, marks: Marks | None) -> Thoughts:
        """The stream that follows a prompt, which may have opened the thoughts, or closed them."""
        if marks is None:
            return cls(None)
        end = prompt.rstrip()
        return cls(
            marks, thinking=end.endswith(marks.opening), answering=end.endswith(marks.closing)
        )

    def push(self, text: str, *, over: bool = False) -> Iterator[Text]:
        """What can be told by now; all of it when it is `over`."""
        text, self._held = self._held + text, ""
        if self._begins:
            text = self._begun(text, over)
        while text:
            told, mark, text = self._cut(text, over)
            yield from self._told(told)
            if self._marks and mark:
                self._turn(self._marks, mark)
                text = mark + text if mark in self._marks.interrupting else text

    def _begun(self, text: str, over: bool) -> str:
        """Blanks before a first opening mark are nobody's text; before an answer they are its."""
        opening, begins = self._marks.opening if self._marks else "", text.lstrip()
        if begins.startswith(opening):
            self._begins, self.thinking, self._after_mark = False, True, True
            return begins[len(opening) :]
        if opening.startswith(begins) and not over:
            self._held = text
            return ""
        self._begins = False
        return text

    def _cut(self, text: str, over: bool) -> tuple[str, str, str]:
        """The text before the next mark, the mark, and the rest; what may become one is held."""
        marks = self._looked_for()
        found = re.search("|".join(map(re.escape, marks)), text) if marks else None
        if found and (over or not _grows(text[found.start() :], marks)):
            return text[: found.start()], found[0], text[found.end() :]
        free = len(text)
        if not over:
            free = found.start() if found else free - begun(text, marks)
        self._held = text[free:]
        return text[:free], "", ""

    def _looked_for(self) -> list[str]:
        """Marks that mean something now, the longest first."""
        marks = self._marks
        if marks is None:
            return []
        if self.thinking:
            return [marks.closing, *marks.interrupting]
        return [marks.opening, *marks.strays] if marks.again else []

    def _turn(self, marks: Marks, mark: str) -> None:
        if mark == marks.opening or self.thinking:
            self.thinking = not self.thinking
            self._after_mark = True

    def _told(self, text: str) -> Iterator[Text]:
        if self._after_mark:
            text = text.lstrip()
            self._after_mark = not text
        if text:
            yield Text(text, self.thinking)


def _grows(text: str, marks: list[str]) -> bool:
    """Whether the text is the beginning, not all, of a mark."""
    return any(mark.startswith(text) and mark != text for mark in marks)
