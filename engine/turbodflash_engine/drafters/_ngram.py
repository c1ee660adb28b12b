"""What drafters without a model share: the text so far, where its n-grams stood, what came true."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from turbodflash_engine.cache.pieces import Arrays, Pieces
from turbodflash_engine.drafters._base import Rows

ENTRY_BYTES = 80  # of one key and its value, beside the table that points to them


class Index(Protocol):
    """What is remembered of the observed text: its tokens, and where to look for some of them."""

    tokens: array[int]

    @property
    def nbytes(self) -> int: ...

    def extend(self, tokens: Sequence[int]) -> None: ...

    def truncate(self, length: int) -> None:
        """Become what the index had been after the first `length` tokens."""


class NgramDrafter:
    """A drafter that looks at tokens alone. It hands every observed token to its index."""

    taps: tuple[int, ...] = ()

    def __init__(self, name: str, longest: int, index: Index) -> None:
        self.name, self.longest, self._text = name, longest, index

    @property
    def nbytes(self) -> int:
        return self._text.nbytes

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        self._text.extend(tokens)

    def truncate(self, length: int) -> None:
        self._text.truncate(length)

    def forget(self, start: int, stop: int) -> None:
        behind = self._text.tokens[stop:]
        self._text.truncate(start)
        self._text.extend(behind)

    form = "text"

    def pieces(self) -> Pieces:
        return {}

    def resume(self, tokens: Sequence[int], saved: Arrays) -> None:
        self._text.truncate(0)
        self._text.extend(tokens)


class Occurrences:
    """Where the n-grams of a growing text stand; the latest occurrence is found at once.

    size: tokens of an n-gram. ahead: one counts as soon as so many tokens (>= 1) follow it, so the
    end of the text never finds itself.
    """

    def __init__(self, size: int, ahead: int) -> None:
        self.size, self.ahead = size, ahead
        self.tokens = array("i")
        self._latest: dict[bytes, int] = {}
        self._previous = array("i")  # at i: where the n-gram tokens[i : i + size] ended before

    @property
    def nbytes(self) -> int:
        tokens = self.tokens.itemsize * (len(self.tokens) + len(self._previous))
        return tokens + table_bytes(self._latest)

    def ends(self, ngram: Sequence[int]) -> Iterator[int]:
        """Where the tokens after each occurrence of the n-gram begin, the latest first."""
        end = self._latest.get(array("i", ngram).tobytes(), 0)
        while end:
            yield end
            end = self._previous[end - self.size]

    def following(self, end: int, count: int) -> tuple[int, ...]:
        """At most `count` tokens that stand from `end` on."""
        return tuple(self.tokens[end : end + count])

    def extend(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)
        for start in range(len(self._previous), self._counted(len(self.tokens))):
            ngram = self._ngram(start)
            self._previous.append(self._latest.get(ngram, 0))
            self._latest[ngram] = start + self.size

    def truncate(self, length: int) -> None:
        for start in reversed(range(self._counted(length), len(self._previous))):
            ngram, previous = self._ngram(start), self._previous.pop()
            if previous:
                self._latest[ngram] = previous
            else:
                del self._latest[ngram]
        del self.tokens[length:]

    def _counted(self, length: int) -> int:
        """How many n-grams count in a text of that length."""
        return max(0, length - self.size - self.ahead + 1)

    def _ngram(self, start: int) -> bytes:
        return self.tokens[start : start + self.size].tobytes()


class Guess(NamedTuple):
    """Tokens that were proposed for the positions from `at` on."""

    at: int
    tokens: tuple[int, ...]

    def came_true(self, history: Sequence[int]) -> int | None:
        """How many of the tokens were right; None while the text has not decided it."""
        text = history[self.at : self.at + len(self.tokens)]
        pairs = enumerate(zip(self.tokens, text, strict=False))
        wrong = next((index for index, (guessed, came) in pairs if guessed != came), None)
        return wrong if wrong is not None or len(text) < len(self.tokens) else len(text)


def table_bytes(table: Mapping[Any, object]) -> int:
    """About what a table of n-grams takes."""
    return sys.getsizeof(table) + ENTRY_BYTES * len(table)


def at_most(longest: int, n_max: int | None) -> int:
    """The most tokens drafted at once, which a person may have lowered."""
    return longest if n_max is None else min(longest, n_max)
