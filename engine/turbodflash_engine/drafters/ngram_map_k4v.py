"""ngram-map-k4v: up to four continuations of an n-gram are told apart, and one must stand out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from turbodflash_engine.drafters._base import NO_DRAFT, Draft, RuleKind
from turbodflash_engine.drafters._ngram import NgramDrafter, Occurrences, at_most
from turbodflash_engine.options import SpecOptions

CONTINUATIONS = 4
RECENT = 16  # occurrences that are looked at: a draft has to be cheap also in a text of one word
MARGIN = 2  # times as often as all other continuations together


class NgramMapK4V(NgramDrafter):
    """Proposes the m tokens that followed the last n most often.

    They must have followed at least twice as often as anything else, over the latest 16
    occurrences of the n tokens, of which there must be `min_hits`.
    """

    def __init__(self, size_n: int, size_m: int, min_hits: int, longest: int) -> None:
        self._index = Occurrences(size_n, ahead=size_m)
        self._min_hits = min_hits
        super().__init__("ngram-map-k4v", longest, self._index)

    def draft(self, history: Sequence[int], width: int) -> Draft:
        found = self._index.ends(history[-self._index.size :])
        ends = list(islice(found, max(RECENT, self._min_hits)))
        if len(ends) < self._min_hits:
            return NO_DRAFT
        best, count = self._most_common(ends)
        if count < MARGIN * (len(ends) - count):
            return NO_DRAFT
        return Draft(best[: min(width, self.longest)])

    def _most_common(self, ends: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """Of the first four continuations met; of equally common ones, the latest."""
        counts: Counter[tuple[int, ...]] = Counter()
        for end in ends:
            continuation = self._index.following(end, self._index.ahead)
            if continuation in counts or len(counts) < CONTINUATIONS:
                counts[continuation] += 1
        return counts.most_common(1)[0]


def build(options: SpecOptions) -> NgramMapK4V:
    sizes = options.ngram_map_k4v
    longest = at_most(sizes.size_m, options.n_max)
    return NgramMapK4V(sizes.size_n, sizes.size_m, sizes.min_hits, longest)


PLUGIN = RuleKind(build)
