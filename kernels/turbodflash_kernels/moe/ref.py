"""The meaning of the op, in the precision of x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels._reference import ReferenceDevice, ReferenceWeight
from turbodflash_kernels.linear import ref as linear
from turbodflash_kernels.op import Experts, Gated, RmsNorm

Floats = NDArray[Any]
Rounding: TypeAlias = Callable[[Floats, ReferenceWeight], Floats]
"""(activations [n, k], what they are multiplied with) -> activations as they are multiplied."""

LEAST_TOTAL = 6.103515625e-5
"""Weights of experts are never divided by less: 2^-14, the smallest normal number in half."""


def refuse(
    device: ReferenceDevice,
    *,
    gate_up: tuple[Experts, ...],
    down: Experts,
    experts: int,
    used: int,
    prologue: RmsNorm | None,
    activation: Literal["silu", "gelu"],
) -> str | None:
    return None


def bind(
    device: ReferenceDevice,
    *,
    gate_up: tuple[Experts, ...],
    down: Experts,
    experts: int,
    used: int,
    prologue: RmsNorm | None,
    activation: Literal["silu", "gelu"],
    rounded: Rounding = lambda a, weight: a,
) -> Callable[..., Floats]:
    def one(expert: int, a: Floats) -> Floats:
        """What an expert makes of one row f[1, k]."""
        halves = [_product(each, expert, experts, a, rounded) for each in gate_up]
        hidden = linear.activations(np.concatenate(halves, axis=1), Gated(activation))
        return _product(down, expert, experts, hidden, rounded)

    def moe(x: Floats, router: Floats, residual: Floats | None = None) -> Floats:
        chosen, weights = choose(router, used)
        a = linear.activations(x, prologue)
        y = np.zeros((len(x), down.weight.rows // experts), x.dtype)
        for row in range(len(x)):
            for expert, weight in zip(chosen[row], weights[row], strict=True):
                y[row] += weight * one(expert, a[row : row + 1])[0]
        return y if residual is None else y + residual

    return moe


def choose(router: Floats, used: int) -> tuple[NDArray[np.intp], Floats]:
    """The experts of each row, the best first, and their weights: both [n, used]."""
    chosen = np.argsort(-router, axis=-1, kind="stable")[:, :used]
    shares = np.exp(router - router.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    weights = np.take_along_axis(shares, chosen, axis=-1)
    total = weights.sum(axis=-1, keepdims=True)
    return chosen, weights / np.maximum(total, router.dtype.type(LEAST_TOTAL))


def _product(part: Experts, expert: int, experts: int, a: Floats, rounded: Rounding) -> Floats:
    rows = part.weight.rows // experts
    own = ReferenceWeight(part.weight.values[expert * rows : (expert + 1) * rows])
    y = linear.product(rounded(a, part.weight), own, None, None)
    return y if part.scale is None else y * part.scale[expert]
