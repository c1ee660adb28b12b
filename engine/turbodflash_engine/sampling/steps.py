"""The steps that look at the candidates alone. Each is pure: candidates in, candidates out.

A setting that changes nothing (top_p 1, min_p 0, …) gives the candidates back as they are.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.sampling.candidates import (
    Candidates,
    entropy,
    information,
    probabilities,
    ranked,
)
from turbodflash_engine.sampling.largest import largest

XTC_MAX_THRESHOLD = 0.5  # above it two tokens cannot both be strong
COLDEST = 1e-250  # all but the best are impossible long before; still colder, and numbers overflow


def top_k(candidates: Candidates, k: int) -> Candidates:
    """Keep the k most likely, ranked. Off at k <= 0."""
    return largest(candidates, k) if k > 0 else candidates


def top_p(candidates: Candidates, p: float) -> Candidates:
    """Keep the shortest ranked prefix whose probability is at least p. Off at p >= 1."""
    if p >= 1:
        return candidates
    logits = candidates.logits
    falling = logits if candidates.order == "logit" else np.sort(logits)[::-1]
    heights = np.exp(falling.astype(np.float64) - falling[0]).cumsum()
    return largest(candidates, int(heights.searchsorted(p * heights[-1])) + 1)


def min_p(candidates: Candidates, p: float) -> Candidates:
    """Keep those at least p times as likely as the best. Off at p <= 0."""
    if p <= 0:
        return candidates
    return candidates.where(candidates.logits >= _floor(candidates, math.log(p)))


def _floor(candidates: Candidates, distance: float) -> float:
    """A logit so far from the best one, but never above it: the best always stays."""
    best = float(candidates.peak)
    return min(best + distance, best)


def typical(candidates: Candidates, p: float) -> Candidates:
    """Keep the least surprising for this distribution's entropy, more than p in sum. Off at 1."""
    if p >= 1:
        return candidates
    probs = probabilities(candidates)
    by = np.argsort(np.abs(information(probs) - entropy(probs)), kind="stable")
    enough = np.flatnonzero(np.cumsum(probs[by]) > p)
    kept = by[: enough[0] + 1] if len(enough) else by
    return Candidates(candidates.ids[kept], candidates.logits[kept], "other")


def top_n_sigma(candidates: Candidates, n: float) -> Candidates:
    """Make impossible what lies more than n standard deviations below the best. Off at n <= 0."""
    logits = candidates.logits
    if n <= 0 or len(logits) < 2:
        return candidates
    spread = float(logits[np.isfinite(logits)].std(dtype=np.float64))
    far = logits < _floor(candidates, -n * spread)
    return Candidates(candidates.ids, np.where(far, -np.inf, logits), candidates.order)


def xtc(candidates: Candidates, probability: float, threshold: float, draw: float) -> Candidates:
    """Exclude top choices: of the tokens with p >= threshold only the least likely stays.

    draw: uniform in [0, 1), from a stream of this step's own; a draw above `probability` does
    nothing. Off at probability <= 0, a threshold above one half, or a single candidate.
    """
    off = probability <= 0 or threshold > XTC_MAX_THRESHOLD or len(candidates.ids) < 2
    if off or draw > probability:
        return candidates
    best = ranked(candidates)
    strong = int((probabilities(best) >= threshold).sum())
    dropped = max(strong - 1, 0)
    return Candidates(best.ids[dropped:], best.logits[dropped:], "logit")


def temperature(
    candidates: Candidates, temp: float, spread: float = 0.0, exponent: float = 1.0
) -> Candidates:
    """Divide by the temperature; at 0 or below only the best stays, of equals the first.

    spread > 0 makes it dynamic: between temp - spread (sure) and temp + spread (unsure), by the
    normalised entropy to the power of `exponent`.
    """
    if spread > 0:
        temp = _dynamic(candidates, temp, spread, exponent)
    if temp <= 0:
        return candidates.where(_is_best(candidates))
    if temp == 1:
        return candidates
    shifted = candidates.logits.astype(np.float64) - candidates.peak
    return Candidates(candidates.ids, shifted / max(temp, COLDEST), candidates.order)


def _dynamic(candidates: Candidates, temp: float, spread: float, exponent: float) -> float:
    count = len(candidates.ids)
    if count < 2:
        return 1.0
    low, high = max(0.0, temp - spread), temp + spread
    unsure = entropy(probabilities(candidates)) / math.log(count)
    return low + (high - low) * max(unsure, 0.0) ** exponent


def _is_best(candidates: Candidates) -> NDArray[np.bool_]:
    """Marks the largest logit; of equals the lowest id."""
    best = np.flatnonzero(candidates.logits == candidates.peak)
    marks = np.zeros(len(candidates.ids), np.bool_)
    marks[best[candidates.ids[best].argmin()]] = True
    return marks
