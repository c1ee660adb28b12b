"""ngram-mod: a large table from the hash of the last n tokens to the token that followed."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from turbodflash_engine.drafters._base import NO_DRAFT, Draft, RuleKind
from turbodflash_engine.drafters._ngram import Guess, NgramDrafter, at_most
from turbodflash_engine.options import SpecOptions

SLOTS = 1 << 22
MULTIPLIER = 6364136223846793005
WORD = (1 << 64) - 1

FULL = 0.25  # share of the slots in use from which an answer begins with an empty table
POOR = 0.25  # share of a proposal; less of it was right in
POOR_ROUNDS = 5  # proposals in a row: the table is emptied


class FollowerTable:
    """What followed the hash of n tokens, the latest only. Hashes may collide.

    It is knowledge about a style, not about one text: cutting the text does not take entries back.
    """

    def __init__(self, n_match: int) -> None:
        self.n_match = n_match
        self._leading = pow(MULTIPLIER, n_match - 1, WORD + 1)
        self.tokens = array("i")
        self._hash = 0
        self.reset()

    @property
    def nbytes(self) -> int:
        return self._followers.nbytes + self.tokens.itemsize * len(self.tokens)

    def reset(self) -> None:
        """Empty the table; the text stays."""
        self._followers = np.zeros(SLOTS, np.int32).data  # the token + 1; 0 is an empty slot
        self.used = 0

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            length = len(self.tokens)
            if length < self.n_match:
                self._hash = (self._hash * MULTIPLIER + token) & WORD
            else:
                self._remember(self._hash % SLOTS, token)
                self._hash = self.rolled(self._hash, self.tokens[length - self.n_match], token)
            self.tokens.append(token)

    def truncate(self, length: int) -> None:
        del self.tokens[length:]
        self._hash = self.hash(self.tokens[-self.n_match :])

    def follower(self, hash: int) -> int | None:
        """The token that followed n tokens of this hash, if any did."""
        found = self._followers[hash % SLOTS]
        return found - 1 if found else None

    def hash(self, tokens: Sequence[int]) -> int:
        """Of at most n tokens."""
        hash = 0
        for token in tokens:
            hash = (hash * MULTIPLIER + token) & WORD
        return hash

    def rolled(self, hash: int, leaving: int, coming: int) -> int:
        """The hash of n tokens, one token further on."""
        return ((hash - leaving * self._leading) * MULTIPLIER + coming) & WORD

    def _remember(self, slot: int, token: int) -> None:
        self.used += not self._followers[slot]
        self._followers[slot] = token + 1


class NgramMod(NgramDrafter):
    """Follows the table from token to token; a chain of less than `n_min` is not proposed."""

    def __init__(self, n_match: int, n_min: int, longest: int) -> None:
        self._table = FollowerTable(n_match)
        self._n_min = n_min
        self._last: Guess | None = None
        self._poor = 0
        super().__init__("ngram-mod", longest, self._table)

    def draft(self, history: Sequence[int], width: int) -> Draft:
        self._learn(history)
        if len(history) < self._table.n_match:
            return NO_DRAFT
        width = min(width, self.longest)
        chain = self._chain(history[-self._table.n_match :], max(width, self._n_min))
        if len(chain) < self._n_min:
            return NO_DRAFT
        self._last = Guess(len(history), tuple(chain[:width]))
        return Draft(self._last.tokens)

    def truncate(self, length: int) -> None:
        """Called between answers, so a table that is too full is emptied here."""
        super().truncate(length)
        self._last = None
        if self._table.used > FULL * SLOTS:
            self._table.reset()

    def _chain(self, ngram: Sequence[int], most: int) -> list[int]:
        """The tokens that the table has after an n-gram, one after the other."""
        table, tokens = self._table, list(ngram)
        hash = table.hash(ngram)
        for leaving in range(most):
            token = table.follower(hash)
            if token is None:
                break
            hash = table.rolled(hash, tokens[leaving], token)
            tokens.append(token)
        return tokens[len(ngram) :]

    def _learn(self, history: Sequence[int]) -> None:
        if self._last is None:
            return
        guess, self._last = self._last, None
        right = guess.came_true(history)
        if right is None:
            return
        self._poor = self._poor + 1 if right < POOR * len(guess.tokens) else 0
        if self._poor == POOR_ROUNDS:
            self._table.reset()
            self._poor = 0


def build(options: SpecOptions) -> NgramMod:
    sizes = options.ngram_mod
    return NgramMod(sizes.n_match, sizes.n_min, at_most(sizes.n_max, options.n_max))


PLUGIN = RuleKind(build)
