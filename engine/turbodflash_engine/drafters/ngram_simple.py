"""ngram-simple: what followed the last n tokens when they were said before."""

from __future__ import annotations

from collections.abc import Sequence

from turbodflash_engine.drafters._base import NO_DRAFT, Draft, RuleKind
from turbodflash_engine.drafters._ngram import NgramDrafter, Occurrences, at_most
from turbodflash_engine.options import SpecOptions


class NgramSimple(NgramDrafter):
    """Proposes up to m tokens from the latest match that at least n tokens followed."""

    def __init__(self, size_n: int, size_m: int, longest: int) -> None:
        self._index = Occurrences(size_n, ahead=size_n)
        self._least_history = size_n + size_m + 2
        super().__init__("ngram-simple", longest, self._index)

    def draft(self, history: Sequence[int], width: int) -> Draft:
        if len(history) < self._least_history:
            return NO_DRAFT
        end = next(self._index.ends(history[-self._index.size :]), 0)
        if not end:
            return NO_DRAFT
        return Draft(self._index.following(end, min(width, self.longest)))


def build(options: SpecOptions) -> NgramSimple:
    sizes = options.ngram_simple
    return NgramSimple(sizes.size_n, sizes.size_m, at_most(sizes.size_m, options.n_max))


PLUGIN = RuleKind(build)
