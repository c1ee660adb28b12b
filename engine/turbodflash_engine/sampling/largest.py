"""The k largest of many, without sorting the many.

The array is seen as a grid whose columns are blocks. The k-th largest column maximum is a lower
bound of the k-th largest value: k columns hold at least one value as large. So only the few
columns that reach it need a closer look.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.sampling.candidates import Candidates, Reals, ranked

ROWS = 64  # of the grid; at 49k values and k = 40, 40 of 768 columns are looked at
COLUMNS_PER_VALUE = 4  # fewer, and the bound is too low to be worth its pass
TIES = 2  # times the columns expected; more, and the bound is a value that many share

Rows = NDArray[np.intp]


def largest(candidates: Candidates, count: int) -> Candidates:
    """The `count` >= 1 candidates with the largest logits, ranked; all if there are fewer."""
    ids, logits, order = candidates
    if order != "id" or count >= len(ids):
        return ranked(candidates).first(count)
    rows = _among_the_largest(logits, count)
    return ranked(Candidates(ids[rows], logits[rows])).first(count)


def _among_the_largest(logits: Reals, count: int) -> Rows:
    """Ascending rows with the `count` largest logits in them, of equals the first, and few more."""
    columns = len(logits) // ROWS
    if columns < COLUMNS_PER_VALUE * count:
        return _exactly_the_largest(logits, count)
    end = columns * ROWS
    grid = logits[:end].reshape(ROWS, columns)
    maxima = grid.max(axis=0)
    bound = _nth_largest(maxima, count)
    chosen = np.flatnonzero(maxima >= bound)
    if len(chosen) > TIES * count:
        return _exactly_the_largest(logits, count)
    row, column = np.divmod(np.flatnonzero(grid[:, chosen] >= bound), len(chosen))
    rest = end + np.flatnonzero(logits[end:] >= bound)
    return np.concatenate([row * columns + chosen[column], rest])


def _exactly_the_largest(logits: Reals, count: int) -> Rows:
    bound = _nth_largest(logits, count)
    above = np.flatnonzero(logits > bound)
    equal = np.flatnonzero(logits == bound)[: count - len(above)]
    return np.sort(np.concatenate([above, equal]))


def _nth_largest(values: Reals, count: int) -> np.floating:
    return np.partition(values, len(values) - count)[len(values) - count]
