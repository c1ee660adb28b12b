"""How far one reading of a text is from another: what is told of all its tokens together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turbodflash_engine.perplexity.estimates import Estimate, Values, mean, perplexity
from turbodflash_engine.perplexity.likely import Difference

SHARES = (1.0, 0.999, 0.99, 0.95, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.01, 0.001, 0.0)
"""Of which the quantiles are told: the maximum, 99.9 %, ..., the minimum."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """What a way of computing changes, against a base.

    ppl, ppl_base: perplexities. log_ratio, ratio, difference: of the two, with errors that know
        that both read the same text. correlation: of their log-probabilities, -1 to 1.
    kld: mean Kullback-Leibler divergence from the base, in nats. delta_p, rms_delta_p: how much
        more probable the token that came is than it was, its mean and the root of its mean square.
    same_top: share of tokens before which both find the same token most probable.
    kld_quantiles, delta_p_quantiles: by share, as in SHARES.
    """

    ppl: Estimate
    ppl_base: Estimate
    correlation: float
    log_ratio: Estimate
    ratio: Estimate
    difference: Estimate
    kld: Estimate
    kld_quantiles: dict[float, float]
    delta_p: Estimate
    rms_delta_p: Estimate
    delta_p_quantiles: dict[float, float]
    same_top: Estimate


def diverged(found: Difference) -> Divergence:
    """All that is told of these tokens, at least one."""
    ppl, base = perplexity(found.nll), perplexity(found.nll_base)
    log_ratio = mean(found.nll - found.nll_base)
    delta_p = found.delta_p
    # to first order, a token moves PPL - base by its share of both
    moved = ppl.value * found.nll - base.value * found.nll_base
    return Divergence(
        ppl=ppl,
        ppl_base=base,
        correlation=_correlation(found.nll, found.nll_base),
        log_ratio=log_ratio,
        ratio=log_ratio.exp(),
        difference=Estimate(ppl.value - base.value, mean(moved).error),
        kld=mean(found.divergence),
        kld_quantiles=_quantiles(found.divergence),
        delta_p=mean(delta_p),
        rms_delta_p=mean(delta_p**2).root(),
        delta_p_quantiles=_quantiles(delta_p),
        same_top=mean(found.same_top),
    )


def _correlation(a: Values, b: Values) -> float:
    """1 where nothing varies."""
    spread = float(a.std() * b.std())
    return float(((a - a.mean()) * (b - b.mean())).mean()) / spread if spread else 1.0


def _quantiles(values: Values) -> dict[float, float]:
    found = np.quantile(values, SHARES)
    return {share: float(value) for share, value in zip(SHARES, found, strict=True)}
