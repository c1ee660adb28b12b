"""Means with their standard errors, and what follows from them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


class Estimate(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float

    def exp(self) -> Estimate:
        """Of e to this value."""
        value = math.exp(self.value)
        return Estimate(value, value * self.error)

    def root(self) -> Estimate:
        """Of the square root of this value."""
        value = math.sqrt(self.value)
        return Estimate(value, 0.5 * self.error / value if value else 0.0)


def mean(values: Values) -> Estimate:
    """The mean of samples, at least one; the error of a single one is 0."""
    if len(values) < 2:
        return Estimate(float(values.mean()), 0.0)
    return Estimate(float(values.mean()), float(values.std() / math.sqrt(len(values) - 1)))


def perplexity(nll: Values) -> Estimate:
    """e to the mean of negative log-probabilities."""
    return mean(nll).exp()
