"""Penalties on tokens that were used lately."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turbodflash_engine.sampling.candidates import Candidates


def window(history: Sequence[int], length: int) -> Sequence[int]:
    """The last `length` tokens of the history; -1 = all of it."""
    if length < 0:
        return history
    return history[-length:] if length else history[:0]


def penalise(
    candidates: Candidates,
    recent: Sequence[int],
    *,
    repeat: float,
    frequency: float,
    presence: float,
) -> Candidates:
    """Lower the logits of tokens in `recent`.

    A token that occurs c > 0 times has its logit divided by `repeat` (multiplied where it is not
    positive), once whatever c is, and then lowered by c * frequency + presence.
    """
    if not len(recent) or (repeat == 1 and frequency == 0 and presence == 0):
        return candidates
    tokens, counts = np.unique(np.asarray(recent, np.int64), return_counts=True)
    rows, here = candidates.rows_of(tokens)
    rows, counts = rows[here], counts[here]
    logits = candidates.logits.copy()
    hit = logits[rows]
    with np.errstate(over="ignore"):  # a penalty may be large enough to forbid a token
        hit = np.where(hit <= 0, hit * repeat, hit / repeat)
        logits[rows] = hit - (counts * frequency + presence)
    return candidates.adjusted(logits)
