"""From logits to how surprising a text is: pure functions, a row at a time.

A row of logits is read from memory once; all else happens in one row of work space, which the
processor's cache holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
Values = NDArray[np.float64]


class Scores(NamedTuple):
    """Of n rows of logits.

    nll: f64[n], the negative logarithm of the probability of the token that came.
    top: i64[n], the most probable token, of several the first.
    normaliser: f64[n]; the logarithm of token t's probability is logits[t] - normaliser.
    """

    nll: Values
    top: NDArray[np.int64]
    normaliser: Values


def score(logits: Logits, targets: Sequence[int] | NDArray[np.int32]) -> Scores:
    """logits: f32[n, vocabulary]. targets: the n tokens that came."""
    work = np.empty(logits.shape[1], np.float32)
    top = logits.argmax(axis=1)
    normaliser = np.array(
        [_normaliser(row, row[best], work) for row, best in zip(logits, top, strict=True)]
    )
    came = logits[np.arange(len(logits)), targets]
    return Scores(normaliser - came, top, normaliser)


def _normaliser(row: Logits, largest: np.float32, work: Logits) -> float:
    np.subtract(row, largest, out=work)
    np.exp(work, out=work)
    return float(largest) + math.log(work.sum())
