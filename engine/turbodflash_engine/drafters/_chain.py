"""A draft made token by token: each the best of a row of logits, until one is not sure enough."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.drafters._base import Draft
from turbodflash_engine.options import SpecOptions

AMONG = 10
"""A probability is taken among so many best tokens: a sum over the vocabulary would cost more than
it tells. It is what p_min is compared with, and what orders a tree."""
CANDIDATES = 8
"""Second thoughts of a row, for a tree."""

UNTRAINED = 16
"""The most tokens drafted at once by a draft that was not trained for a certain number."""


class Chain:
    """The tokens drafted so far; with a tree to be grown, the best few of each row too."""

    def __init__(self, options: SpecOptions) -> None:
        self._p_min, self._tree = options.p_min, options.tree > 0
        self._tokens: list[int] = []
        self._candidates: list[NDArray[np.int32]] = []
        self._log_probs: list[NDArray[np.float32]] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, values: NDArray[np.float32], tokens: NDArray[np.int32]) -> int | None:
        """The first of `tokens` if it is sure enough, else None and the chain is over.

        values, tokens: as many of a row's largest logits as `needed` says, best first.
        """
        log_probs = _log_softmax(values)
        if self._p_min > 0 and np.exp(log_probs[0]) < self._p_min:
            return None
        self._tokens.append(int(tokens[0]))
        if self._tree:
            self._candidates.append(tokens[:CANDIDATES].copy())
            self._log_probs.append(log_probs[:CANDIDATES])
        return self._tokens[-1]

    def draft(self) -> Draft:
        tokens = tuple(self._tokens)
        if not self._candidates:
            return Draft(tokens)
        return Draft(tokens, np.stack(self._candidates), np.stack(self._log_probs))


def needed(options: SpecOptions, vocabulary: int) -> int:
    """How many of a row's largest logits a chain looks at."""
    return min(AMONG, vocabulary) if options.p_min > 0 or options.tree else 1


def largest(
    logits: NDArray[np.float32], count: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The `count` largest of logits [m] and their ids, best first, equal ones by id."""
    if count == 1:
        ids = np.array([logits.argmax()], np.int32)
        return logits[ids], ids
    least = np.partition(logits, -count)[-count]
    some = np.flatnonzero(logits >= least)
    ids = some[np.argsort(-logits[some], kind="stable")][:count].astype(np.int32)
    return logits[ids], ids


def _log_softmax(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """values: descending."""
    shifted = values - values[0]
    normal: NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum())
    return normal
