"""Mirostat: keep the surprise of the text near a target, by one number that follows it.

Both versions take mu (the surprise allowed, in bits) and cut the ranked candidates by it. `moved`
is the feedback after a draw. They replace the chain: only temperature comes before them.
"""

from __future__ import annotations

import math

import numpy as np

from turbodflash_engine.sampling.candidates import Candidates, Reals, probabilities, ranked
from turbodflash_engine.sampling.largest import largest

ZIPF_RANKS = 100  # from which the exponent is estimated
MAX_LOG_K = 64.0  # a k beyond every vocabulary


def start(target: float) -> float:
    """mu before the first token."""
    return 2 * target


def moved(mu: float, surprise: float, target: float, rate: float) -> float:
    """mu after a token of this surprise (bits)."""
    return mu - rate * (surprise - target)


def version_1(candidates: Candidates, mu: float, vocab_size: int) -> Candidates:
    """Top-k with the k at which a Zipf law through the best ranks has surprise mu."""
    exponent = _zipf_exponent(largest(candidates, ZIPF_RANKS).logits)
    if exponent <= 0:
        return ranked(candidates)
    log_size, epsilon = math.log(max(vocab_size, 2)), exponent - 1
    scale = -epsilon / math.expm1(-epsilon * log_size) if epsilon else 1 / log_size
    log_k = (math.log(scale) + mu * math.log(2)) / exponent
    return largest(candidates, max(int(math.exp(min(log_k, MAX_LOG_K))), 1))


def version_2(candidates: Candidates, mu: float) -> Candidates:
    """Those whose surprise is at most mu, ranked; the best always stays."""
    likely = probabilities(candidates) >= 2.0 ** min(-mu, 0.0)
    return largest(candidates, max(int(likely.sum()), 1))


def _zipf_exponent(falling: Reals) -> float:
    """Least squares of ln(p_i / p_{i+1}) over ln((i+2) / (i+1)); 0 if there is nothing to fit."""
    falling = falling[np.isfinite(falling)].astype(np.float64)
    if len(falling) < 2:
        return 0.0
    steps, falls = np.diff(np.log(np.arange(1, len(falling) + 1))), -np.diff(falling)
    return float((steps * falls).sum() / (steps * steps).sum())
