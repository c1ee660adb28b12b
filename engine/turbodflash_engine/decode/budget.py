"""A limit on thoughts: when it is reached, the mark that ends them is what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from turbodflash_engine.decode.loop import Onlooker
from turbodflash_engine.decode.target import Output
from turbodflash_engine.sampling.candidates import Candidates
from turbodflash_engine.tokenizer.marks import Marks

LONGEST_CHARACTER = 4  # bytes


class Tokenizer(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]: ...

    def piece(self, id: int, special: bool = False) -> bytes: ...


class Budget(NamedTuple):
    """tokens: of thought in an answer. message: said before the mark that then ends it."""

    tokens: int
    message: str = ""


class Budgeted:
    """A sampler whose choice is overruled where thoughts have cost as many tokens as they may.

    What is forced follows from the tokens before it alone, so drafting changes nothing. A
    character that is not complete is completed first.
    """

    def __init__(
        self,
        sampler: Onlooker,
        tokenizer: Tokenizer,
        marks: Marks,
        budget: Budget,
        *,
        thinking: bool = False,
    ) -> None:
        """thinking: the answer begins within a thought."""
        self.seed = sampler.seed
        self._sampler, self._tokenizer, self._left = sampler, tokenizer, budget.tokens
        self._opening, self._closing, self._forced = (
            tokenizer.encode(text, add_special=False, parse_special=True)
            for text in (marks.opening, marks.closing, budget.message + marks.closing)
        )
        self._thinking = thinking
        self._coming: list[int] = []
        self._seen = -1

    def look(self, rows: Output) -> Sequence[Candidates]:
        """What the sampler needs of every row."""
        return self._sampler.look(rows)

    def choose(self, seen: Candidates, position: int, history: Sequence[int]) -> int:
        """The token at `position`; to be called once for each, in the order of the text."""
        self._follow(history)
        if self._thinking and self._left <= 0 and not self._coming and self._whole(history):
            self._coming = list(self._forced)
        if self._coming:
            return self._coming.pop(0)
        return self._sampler.choose(seen, position, history)

    def _follow(self, history: Sequence[int]) -> None:
        """Notice what the tokens that came since the last call mean."""
        if self._seen < 0:
            self._seen = len(history)  # what was said before this answer costs nothing
        for end in range(self._seen + 1, len(history) + 1):
            if self._thinking:
                self._left -= 1
                self._thinking = not _ends_with(history, end, self._closing)
            else:
                self._thinking = _ends_with(history, end, self._opening)
        self._seen = len(history)

    def _whole(self, history: Sequence[int]) -> bool:
        """Whether the text so far ends with a character, or with bytes that can become none."""
        latest = history[-LONGEST_CHARACTER:]
        tail = b"".join(self._tokenizer.piece(token, special=True) for token in latest)
        return not _is_begun(tail[-LONGEST_CHARACTER:])


def _ends_with(tokens: Sequence[int], end: int, wanted: Sequence[int]) -> bool:
    return list(tokens[max(end - len(wanted), 0) : end]) == list(wanted)


def _is_begun(tail: bytes) -> bool:
    """Whether bytes end in the beginning, not all, of a character of several bytes."""
    for back in range(1, min(len(tail), LONGEST_CHARACTER - 1) + 1):
        first = tail[-back]
        if first >= 0xC0:
            return back < (2 if first < 0xE0 else 3 if first < 0xF0 else 4)
        if first < 0x80:
            return False
    return False
