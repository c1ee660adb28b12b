"""From the best few of each row to a draft: where it stops, and what else it might have been."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.drafters._base import Draft
from turbodflash_engine.options import SpecOptions

AMONG = 10
"""A probability is taken among so many best tokens: a sum over the vocabulary would cost more than
it tells. It is what p_min is compared with, and what orders a tree."""
CANDIDATES = 8
"""Second thoughts of a row, for a tree; more of them have not been seen to help."""

LARGE = np.float32(1e30)

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]


def looked_at(options: SpecOptions, rows: int) -> int:
    """How many of the largest of `rows` logits a draft needs."""
    return min(AMONG, rows) if options.p_min > 0 or options.tree else 1


def log_softmax(scores: Floats) -> Floats:
    """Over the last axis. Infinite scores count as very large ones: no NaN comes of them."""
    finite = np.clip(scores, -LARGE, LARGE)
    shifted = finite - finite.max(axis=-1, keepdims=True)
    normal: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normal


def probabilities(log_probs: Floats) -> list[float]:
    """Of the best of each row."""
    best: list[float] = np.exp(log_probs[:, 0]).tolist()
    return best


def draft_of(tokens: Ids, log_probs: Floats, confidence: Sequence[float], p_min: float) -> Draft:
    """The best of each row, up to the first that is no token or less sure than p_min.

    tokens i32[n, k], -1 = none, with log_probs f32[n, k], best first. confidence: of each row.
    """
    count = 0
    for best, sure in zip(tokens[:, 0], confidence, strict=True):
        if best < 0 or sure < p_min:
            break
        count += 1
    chosen = tuple(map(int, tokens[:count, 0]))
    if tokens.shape[1] == 1:
        return Draft(chosen)
    some, probable = tokens[:count, :CANDIDATES], log_probs[:count, :CANDIDATES]
    return Draft(chosen, np.maximum(some, 0), np.where(some < 0, -np.inf, probable))
