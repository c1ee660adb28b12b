"""ngram-cache: the most frequent follower of the last four tokens, or three, or two, or one.

Statistics are those of the text at hand; statistics kept in files from run to run are not read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from turbodflash_engine.drafters._base import Draft, RuleKind
from turbodflash_engine.drafters._ngram import NgramDrafter, at_most, table_bytes
from turbodflash_engine.options import SpecOptions

LONGEST = 8  # tokens drafted at once
LARGEST = 4  # tokens of an n-gram
LEAST_SEEN = (2, 2, 1, 1)  # times that an n-gram of 1, 2, 3, 4 tokens must have been followed
LEAST_PERCENT = (66, 50, 50, 50)  # of which so many by the same token

COUNTS_BYTES = 300  # of the counts of one n-gram


class _Counts:
    """How often each token followed an n-gram."""

    __slots__ = ("by_token", "total")

    def __init__(self, first: int) -> None:
        self.by_token, self.total = {first: 1}, 1

    def add(self, token: int, times: int) -> None:
        self.by_token[token] = self.by_token.get(token, 0) + times
        self.total += times
        if not self.by_token[token]:
            del self.by_token[token]


class _Followers:
    """What followed the n-grams of one size."""

    def __init__(self, size: int) -> None:
        self._least_seen, self._least_percent = LEAST_SEEN[size - 1], LEAST_PERCENT[size - 1]
        self._best: dict[bytes, int] = {}
        self._counts: dict[bytes, _Counts] = {}  # of n-grams that were seen more than once
        self._replaced = array("i")  # the best before each addition, -1 for none

    @property
    def nbytes(self) -> int:
        tables = table_bytes(self._best) + table_bytes(self._counts)
        return tables + COUNTS_BYTES * len(self._counts) + 4 * len(self._replaced)

    def guess(self, ngram: bytes) -> int | None:
        """The most frequent follower, of equals the latest one, if it is frequent enough."""
        best = self._best.get(ngram)
        if best is None:
            return None
        counts = self._counts.get(ngram)
        seen, right = (counts.total, counts.by_token[best]) if counts else (1, 1)
        enough = seen >= self._least_seen and 100 * right >= self._least_percent * seen
        return best if enough else None

    def add(self, ngram: bytes, token: int) -> None:
        best = self._best.get(ngram, -1)
        self._replaced.append(best)
        if best < 0:
            self._best[ngram] = token
            return
        counts = self._counts.get(ngram)
        if counts is None:
            counts = self._counts[ngram] = _Counts(best)
        counts.add(token, 1)
        if counts.by_token[token] >= counts.by_token[best]:
            self._best[ngram] = token

    def take_back(self, ngram: bytes, token: int) -> None:
        """Undo the latest addition, which was this one."""
        best = self._replaced.pop()
        if best < 0:
            del self._best[ngram]
            return
        self._best[ngram] = best
        counts = self._counts[ngram]
        counts.add(token, -1)
        if counts.total == 1:
            del self._counts[ngram]


class Statistics:
    """What followed the n-grams of one to four tokens of a growing text, counted when asked."""

    def __init__(self) -> None:
        self.tokens = array("i")
        self._counted = 0  # tokens
        self._sizes = [(size, _Followers(size)) for size in range(1, LARGEST + 1)]

    @property
    def nbytes(self) -> int:
        return 4 * len(self.tokens) + sum(followers.nbytes for _, followers in self._sizes)

    def guess(self, history: Sequence[int]) -> int | None:
        """The next token: the longest n-gram that has a clear follower decides."""
        self._count()
        end = array("i", history[-LARGEST:])
        for size, followers in reversed(self._sizes[: len(end)]):
            token = followers.guess(end[-size:].tobytes())
            if token is not None:
                return token
        return None

    def extend(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)

    def truncate(self, length: int) -> None:
        while self._counted > length:
            self._counted -= 1
            for ngram, followers in self._before(self._counted):
                followers.take_back(ngram, self.tokens[self._counted])
        del self.tokens[length:]

    def _count(self) -> None:
        for at in range(self._counted, len(self.tokens)):
            for ngram, followers in self._before(at):
                followers.add(ngram, self.tokens[at])
        self._counted = len(self.tokens)

    def _before(self, at: int) -> Iterator[tuple[bytes, _Followers]]:
        """The n-grams that end before a token."""
        for size, followers in self._sizes[:at]:
            yield self.tokens[at - size : at].tobytes(), followers


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
        return Draft(tuple(tokens[known:]))


def build(options: SpecOptions) -> NgramCache:
    return NgramCache(at_most(LONGEST, options.n_max))


PLUGIN = RuleKind(build)
