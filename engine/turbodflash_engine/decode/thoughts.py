"""Thoughts and answer told apart, by the marks that a model writes around its thoughts."""

from __future__ import annotations

from collections.abc import Iterator

from turbodflash_engine.decode.stop import begun
from turbodflash_engine.events import Text


class Thoughts:
    """A stream of text that may begin with one stretch of thought.

    The marks, and blanks right after one, are nobody's text. A mark in the middle of an answer is
    text like any other.
    """

    def __init__(self, marks: tuple[str, str] | None, thinking: bool = False) -> None:
        """marks: before and after thoughts; None = all is answer. thinking: it has begun."""
        self._opening, self._closing = marks or ("", "")
        self._may_open = marks is not None and not thinking
        self._thinking = marks is not None and thinking
        self._after_mark = self._thinking
        self._held = ""

    @classmethod
    def after(cls, prompt: str, marks: tuple[str, str] | None) -> Thoughts:
        """The stream that follows a prompt, which may have opened the thoughts itself."""
        return cls(marks, thinking=marks is not None and prompt.rstrip().endswith(marks[0]))

    def push(self, text: str, *, over: bool = False) -> Iterator[Text]:
        """What can be told by now; all of it when it is `over`."""
        text, self._held = self._held + text, ""
        if self._may_open:
            text = self._opened(text, over)
        if self._thinking:
            thought, text = self._closed(text, over)
            yield from self._told(thought, thought=True)
            self._after_mark |= not self._thinking
        if not self._thinking and not self._may_open:
            yield from self._told(text, thought=False)

    def _opened(self, text: str, over: bool) -> str:
        """The text after the opening mark; the text itself where there is none."""
        begins = text.lstrip()
        if begins.startswith(self._opening):
            self._may_open, self._thinking, self._after_mark = False, True, True
            return begins[len(self._opening) :]
        if self._opening.startswith(begins) and not over:
            self._held = text
            return ""
        self._may_open = False
        return text

    def _closed(self, text: str, over: bool) -> tuple[str, str]:
        """The thought in the text, and the answer after it."""
        thought, mark, answer = text.partition(self._closing)
        if mark:
            self._thinking = False
            return thought, answer
        free = len(text) if over else len(text) - begun(text, [self._closing])
        self._held = text[free:]
        return text[:free], ""

    def _told(self, text: str, *, thought: bool) -> Iterator[Text]:
        if self._after_mark:
            text = text.lstrip()
            self._after_mark = not text
        if text:
            yield Text(text, thought)
