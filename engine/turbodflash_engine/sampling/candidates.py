"""The tokens still in play, with their logits: what every sampling step takes and gives."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.signedinteger[Any]]
Reals = NDArray[np.floating]
Order = Literal["id", "logit", "other"]


class Candidates(NamedTuple):
    """Parallel arrays: token ids [n] and logits [n]; n is at least 1. Never written in place.

    order: "id" = ascending ids; "logit" = descending logits, equals by ascending id.
    """

    ids: Ids
    logits: Reals
    order: Order = "id"

    @property
    def peak(self) -> np.floating:
        """The largest logit."""
        largest: np.floating = self.logits[0] if self.order == "logit" else self.logits.max()
        return largest

    def first(self, count: int) -> Candidates:
        """The first `count` in the present order."""
        return Candidates(self.ids[:count], self.logits[:count], self.order)

    def where(self, keep: NDArray[np.bool_]) -> Candidates:
        """Those that `keep` [n] marks, in the present order."""
        return Candidates(self.ids[keep], self.logits[keep], self.order)

    def copied(self) -> Candidates:
        """In memory of their own, for those that outlive the pass they are of."""
        return Candidates(self.ids.copy(), self.logits.copy(), self.order)

    def adjusted(self, logits: Reals) -> Candidates:
        """The same tokens with other logits [n]."""
        order: Order = "id" if self.order == "id" else "other"
        return Candidates(self.ids, logits, order)

    def rows_of(self, tokens: Ids) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Where the tokens [m] stand here: rows [m], and which of them [m] stand here at all."""
        if self.order == "id":
            rows = np.searchsorted(self.ids, tokens)
            rows = np.minimum(rows, len(self.ids) - 1)
        else:
            by_id = np.argsort(self.ids)
            rows = np.searchsorted(self.ids, tokens, sorter=by_id)
            rows = by_id[np.minimum(rows, len(self.ids) - 1)]
        return rows, self.ids[rows] == tokens


class Largest(NamedTuple):
    """The k largest logits of some rows, descending, of equals the lowest id first: [n, k]."""

    values: NDArray[np.float32]
    ids: NDArray[np.int32]

    def of(self, row: int) -> Candidates:
        """Those of one row."""
        return Candidates(self.ids[row], self.values[row], "logit")


def ranked(candidates: Candidates) -> Candidates:
    """All candidates by descending logit; of equals the lower id comes first."""
    ids, logits, order = candidates
    if order == "logit":
        return candidates
    by = np.argsort(-logits, kind="stable") if order == "id" else np.lexsort((ids, -logits))
    return Candidates(ids[by], logits[by], "logit")


def probabilities(candidates: Candidates) -> NDArray[np.float64]:
    """Softmax in float64, in the order of the candidates."""
    shifted = candidates.logits.astype(np.float64)
    shifted -= candidates.peak
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum()
    return shifted


def information(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """-ln p; infinite where p is 0."""
    with np.errstate(divide="ignore"):
        return -np.log(probs)


def entropy(probs: NDArray[np.float64]) -> float:
    """Σ -p ln p in nats; impossible candidates add nothing."""
    possible = probs[probs > 0]
    return float(-(possible * np.log(possible)).sum())
