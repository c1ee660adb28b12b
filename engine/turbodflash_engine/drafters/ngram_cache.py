"""ngram-cache: the most frequent follower of the last four tokens, or three, or two, or one.

Statistics are those of the text at hand; statistics kept in files from run to run are not read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from turbodflash_engine.drafters._base import NO_DRAFT, Draft, RuleKind
from turbodflash_engine.drafters._ngram import NgramDrafter, at_most, table_bytes
from turbodflash_engine.options import SpecOptions

LONGEST = 8  # tokens drafted at once
LARGEST = 4  # tokens of an n-gram
LEAST_SEEN = (2, 2, 1, 1)  # times that an n-gram of 1, 2, 3, 4 tokens must have been followed
LEAST_PERCENT = (66, 50, 50, 50)  # of which so many by the same token

TOKEN_BITS = 32
COUNTS_BYTES = 300  # of the counts of one n-gram


class _Counts:
    """How often each token followed an n-gram that was seen more than once.

    best: the most frequent one, of equals the latest.
    """

    __slots__ = ("best", "by_token", "total")

    def __init__(self, first: int) -> None:
        self.best, self.by_token, self.total = first, {first: 1}, 1

    def add(self, token: int) -> None:
        times = self.by_token[token] = self.by_token.get(token, 0) + 1
        self.total += 1
        if times >= self.by_token[self.best]:
            self.best = token

    def take_back(self, token: int, best: int) -> None:
        """Undo the latest addition, before which there was this best."""
        self.by_token[token] -= 1
        self.total -= 1
        self.best = best
        if not self.by_token[token]:
            del self.by_token[token]


class Statistics:
    """What followed the n-grams of one to four tokens of a growing text, counted when asked."""

    def __init__(self) -> None:
        self.tokens = array("i")
        self._counted = 0  # tokens
        self._followers: dict[int, int | _Counts] = {}  # the token itself of what was seen once
        self._several = 0  # of these, counts
        self._replaced = array("i")  # the best before each addition, -1 for none

    @property
    def nbytes(self) -> int:
        tables = table_bytes(self._followers) + COUNTS_BYTES * self._several
        return 4 * (len(self.tokens) + len(self._replaced)) + tables

    def guess(self, history: Sequence[int]) -> int | None:
        """The next token: the longest n-gram that has a clear follower decides."""
        if self._counted < len(self.tokens):
            self._count()
        clear = None
        for place, ngram in enumerate(_ngrams(history[-LARGEST:])):
            known = self._followers.get(ngram)
            if known is None:
                break  # nor was a longer one seen
            if isinstance(known, int):
                best, right, seen = known, 1, 1
            else:
                best, right, seen = known.best, known.by_token[known.best], known.total
            if seen >= LEAST_SEEN[place] and 100 * right >= LEAST_PERCENT[place] * seen:
                clear = best
        return clear

    def extend(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)

    def truncate(self, length: int) -> None:
        while self._counted > length:
            self._counted -= 1
            token = self.tokens[self._counted]
            for ngram in reversed([*self._before(self._counted)]):
                self._take_back(ngram, token)
        del self.tokens[length:]

    def _count(self) -> None:
        followers, replaced = self._followers, self._replaced
        for at in range(self._counted, len(self.tokens)):
            token = self.tokens[at]
            for ngram in self._before(at):
                known = followers.get(ngram)
                if known is None:
                    followers[ngram] = token
                    replaced.append(-1)
                    continue
                if isinstance(known, int):
                    known = followers[ngram] = _Counts(known)
                    self._several += 1
                replaced.append(known.best)
                known.add(token)
        self._counted = len(self.tokens)

    def _take_back(self, ngram: int, token: int) -> None:
        """Undo the latest addition, which was this one."""
        best = self._replaced.pop()
        counts = self._followers[ngram]
        if isinstance(counts, int):
            del self._followers[ngram]
            return
        counts.take_back(token, best)
        if counts.total == 1:
            self._followers[ngram] = best
            self._several -= 1

    def _before(self, at: int) -> Iterator[int]:
        return _ngrams(self.tokens[max(at - LARGEST, 0) : at])


def _ngrams(tokens: Sequence[int]) -> Iterator[int]:
    """The last of these tokens, the last two, ... each as a number that stands for nothing else."""
    ngram = 1
    for token in reversed(tokens):
        ngram = ngram << TOKEN_BITS | token
        yield ngram


class NgramCache(NgramDrafter):
    """Guesses token by token from statistics, until none is clear."""

    def __init__(self, longest: int) -> None:
        self._statistics = Statistics()
        super().__init__("ngram-cache", longest, self._statistics)

    def draft(self, history: Sequence[int], width: int) -> Draft:
        tokens = list(history[-LARGEST:])
        known = len(tokens)
        for _ in range(min(width, self.longest)):
            token = self._statistics.guess(tokens)
            if token is None:
                break
            tokens.append(token)
        return Draft(tuple(tokens[known:])) if len(tokens) > known else NO_DRAFT


def build(options: SpecOptions) -> NgramCache:
    return NgramCache(at_most(LONGEST, options.n_max))


PLUGIN = RuleKind(build)
