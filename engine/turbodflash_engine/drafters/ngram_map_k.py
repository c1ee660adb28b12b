"""ngram-map-k: as ngram-simple, and each n-gram remembers how well it was followed last."""

from __future__ import annotations

from collections.abc import Sequence

from turbodflash_engine.drafters._base import NO_DRAFT, Draft, RuleKind
from turbodflash_engine.drafters._ngram import Guess, NgramDrafter, Occurrences, at_most
from turbodflash_engine.options import SpecOptions


class NgramMapK(NgramDrafter):
    """Proposes up to m tokens from the latest match, or as many as were right the last time.

    A proposal that was right to its end says nothing of what lies behind it, so it lifts the
    limit; one that was wrong from its start leaves a limit of one token, so that an n-gram can
    win its trust back.
    """

    def __init__(self, size_n: int, size_m: int, longest: int) -> None:
        self._index = Occurrences(size_n, ahead=size_n)
        self._least_history = size_n + size_m + 2
        self._limits: dict[tuple[int, ...], int] = {}
        self._last: tuple[tuple[int, ...], Guess] | None = None
        super().__init__("ngram-map-k", longest, self._index)

    def draft(self, history: Sequence[int], width: int) -> Draft:
        self._learn(history)
        if len(history) < self._least_history:
            return NO_DRAFT
        ngram = tuple(history[-self._index.size :])
        end = next(self._index.ends(ngram), 0)
        if not end:
            return NO_DRAFT
        most = min(width, self.longest, self._limits.get(ngram, self.longest))
        tokens = self._index.following(end, most)
        self._last = ngram, Guess(len(history), tokens)
        return Draft(tokens)

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self._last = None
        if not length:
            self._limits.clear()

    def _learn(self, history: Sequence[int]) -> None:
        if self._last is None:
            return
        (ngram, guess), self._last = self._last, None
        right = guess.came_true(history)
        if right == len(guess.tokens):
            self._limits.pop(ngram, None)
        elif right is not None:
            self._limits[ngram] = max(right, 1)


def build(options: SpecOptions) -> NgramMapK:
    sizes = options.ngram_map_k
    return NgramMapK(sizes.size_n, sizes.size_m, at_most(sizes.size_m, options.n_max))


PLUGIN = RuleKind(build)
