"""A draft made token by token: each the best of a row of logits, until one is not sure enough."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.drafters._base import NO_DRAFT, Draft
from turbodflash_engine.drafters._guesses import draft_of, log_softmax

UNTRAINED = 16
"""The most tokens drafted at once by a draft that was not trained for a certain number."""

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]


class Chain:
    """The tokens drafted so far, with the best few of the rows they were chosen from."""

    def __init__(self, p_min: float) -> None:
        self._p_min = p_min
        self._tokens: list[Ids] = []
        self._log_probs: list[Floats] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, values: Floats, tokens: Ids) -> int | None:
        """Go on with the first of these tokens; None if it is not sure, and the chain is over.

        So it is where the logits are no numbers.

        values, tokens: as many of a row's largest logits as `looked_at` says, best first; -1 for
        what is no token of the model.
        """
        if not values[0] > -np.inf:
            return None
        log_probs = log_softmax(values)
        if tokens[0] < 0 or np.exp(log_probs[0]) < self._p_min:
            return None
        self._tokens.append(tokens)
        self._log_probs.append(log_probs)
        return int(tokens[0])

    def draft(self) -> Draft:
        if not self._tokens:
            return NO_DRAFT
        sure = [1.0] * len(self)
        return draft_of(np.stack(self._tokens), np.stack(self._log_probs), sure, p_min=0.0)
