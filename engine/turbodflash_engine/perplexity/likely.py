"""The distributions that a divergence is measured from, small: the likely tokens of each row.

Of a row, the tokens of a probability above e^-16 are kept, with the logarithm of it in 16 bits;
all others together are one outcome, of which the probability is kept. Of SmolLM2's 49,152 tokens
that leaves 6,800, and 0.04 % of the probability lies outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.perplexity.scoring import Logits, Scores, Values

DEEPEST = 16
"""Tokens of a log-probability of at most minus this are not told apart."""

STEPS = 65536 // DEEPEST
"""Steps of a kept logarithm per unit."""


NOISE = 1e-6
"""Probabilities of all unlikely tokens together that are below this are taken as equal: they are
what float32 sums leave of 1."""


class Likely(NamedTuple):
    """Distributions of n rows.

    nll: f32[n], of the token that came. tops: u32[n], the most probable token.
    tails: f32[n], the probability of all tokens that are not kept. counts: u32[n], tokens kept.
    present: u8[n, vocabulary / 8, rounded up], a bit for each token, the first the highest of its
        byte. codes: u16[sum of counts], of the kept tokens in order: log-probability * -STEPS.
    """

    nll: NDArray[np.float32]
    tops: NDArray[np.uint32]
    tails: NDArray[np.float32]
    counts: NDArray[np.uint32]
    present: NDArray[np.uint8]
    codes: NDArray[np.uint16]


class Difference(NamedTuple):
    """Of n rows against what they should be, f64[n] each.

    nll, nll_base: of the token that came. divergence: Kullback-Leibler, in nats, from the base.
    same_top: 1 where the most probable token is the same, else 0.
    """

    nll: Values
    nll_base: Values
    divergence: Values
    same_top: Values

    @property
    def delta_p(self) -> Values:
        """How much more probable the token that came is than it was."""
        return np.exp(-self.nll) - np.exp(-self.nll_base)


def keep(logits: Logits, scores: Scores) -> Likely:
    """The distributions of scored rows."""
    kept, codes, tails = [], [], []
    for row, normaliser in zip(logits, scores.normaliser, strict=True):
        present = row > normaliser - DEEPEST
        logs = row[present] - normaliser
        tails.append(max(1.0 - float(np.exp(logs).sum()), 0.0))
        kept.append(np.packbits(present))
        codes.append(np.rint(np.clip(logs, -DEEPEST, 0) * -STEPS).clip(0, 65535).astype(np.uint16))
    return Likely(
        scores.nll.astype(np.float32),
        scores.top.astype(np.uint32),
        np.array(tails, np.float32),
        np.array([len(each) for each in codes], np.uint32),
        np.array(kept),
        np.concatenate(codes),
    )


def join(parts: Sequence[Likely]) -> Likely:
    """The rows of all parts, one after the other."""
    return Likely(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def compare(base: Likely, start: int, logits: Logits, scores: Scores) -> Difference:
    """Scored rows against rows start, start + 1, ... of the base."""
    rows = slice(start, start + len(logits))
    ends = np.cumsum(base.counts)
    divergences = []
    for index, row in enumerate(logits, start):
        codes = base.codes[ends[index] - base.counts[index] : ends[index]]
        tokens = np.flatnonzero(np.unpackbits(base.present[index], count=logits.shape[1]))
        logs = row[tokens] - scores.normaliser[index - start]
        divergences.append(_divergence(codes, float(base.tails[index]), logs))
    return Difference(
        scores.nll,
        base.nll[rows].astype(np.float64),
        np.array(divergences),
        (base.tops[rows] == scores.top).astype(np.float64),
    )


def _divergence(codes: NDArray[np.uint16], tail: float, logs: Values) -> float:
    """From the kept distribution to one whose log-probabilities of the same tokens are `logs`.

    The kept one is scaled to a sum of 1, which takes the rounding of its codes out of the result
    but for its square.
    """
    kept = codes * (-1.0 / STEPS)
    p = np.exp(kept)
    total = p.sum()
    kept += np.log1p(-tail) - np.log(total)
    p *= (1 - tail) / total
    found = float(p @ (kept - logs))
    other = 1.0 - float(np.exp(logs).sum())
    found += tail * float(np.log(max(tail, NOISE)) - np.log(max(other, NOISE)))
    return max(found, 0.0)
